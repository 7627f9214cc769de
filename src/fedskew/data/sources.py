"""The official files of every data set: where they are, how long they are, what their bytes must hash to."""

from __future__ import annotations

from dataclasses import dataclass

from fedskew.errors import FedskewError


@dataclass(frozen=True)
class File:
    """One official file; `digest` is "sha256:..." or, where its authors published only that, "md5:..."."""

    name: str
    size: int
    digest: str
    mirrors: tuple[str, ...] = ()


@dataclass(frozen=True)
class Source:
    """A data set as its authors publish it. `files` are what the loader reads, below `folder`."""

    name: str
    folder: str
    train: int
    test: int
    classes: tuple[str, ...]
    shape: tuple[int, ...]
    licence: str
    homepage: str
    files: tuple[File, ...] = ()
    archive: File | None = None  # what is fetched when `files` or `clips` come packed
    clips: tuple[int, ...] = ()  # speech: clips of each word, all splits together
    validation: int = 0  # speech: clips of the official validation list, in neither train nor test
    max_bytes: int = 0  # of the unpacked archive: what it holds, and some room
    max_members: int = 0

    @property
    def download(self) -> int:
        """How many bytes `fedskew data get` fetches."""
        return self.archive.size if self.archive else sum(f.size for f in self.files)


DIGITS = tuple("0123456789")
KEYWORDS = ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go")
SPLIT_LISTS = ("validation_list.txt", "testing_list.txt")


def _mirrored(bases: tuple[str, ...], name: str, size: int, digest: str) -> File:
    return File(name, size, digest, tuple(base + name for base in bases))


_MNIST = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
    "http://yann.lecun.com/exdb/mnist/",
)
_FASHION = (
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
    "https://storage.googleapis.com/tensorflow/tf-keras-datasets/",
)
_CIFAR = (
    "https://www.cs.toronto.edu/~kriz/",
    "https://storage.googleapis.com/s4tf-hosted-binaries/datasets/CIFAR10/",
    "https://mindspore-website.obs.cn-north-4.myhuaweicloud.com/notebook/datasets/",
)
_SPEECH = (
    "https://storage.googleapis.com/download.tensorflow.org/data/",
    "http://download.tensorflow.org/data/",
)

_ALL = (
    Source(
        name="digits",
        folder="",
        train=1437,
        test=360,
        classes=DIGITS,
        shape=(1, 8, 8),
        licence="CC BY 4.0 (Alpaydin, Kaynak 1998)",
        homepage="https://archive.ics.uci.edu/dataset/80",
    ),
    Source(
        name="mnist",
        folder="mnist",
        train=60_000,
        test=10_000,
        classes=DIGITS,
        shape=(1, 28, 28),
        licence="LeCun, Cortes, Burges; CC BY-SA 3.0",
        homepage="http://yann.lecun.com/exdb/mnist/",
        files=(
            _mirrored(
                _MNIST,
                "train-images-idx3-ubyte.gz",
                9_912_422,
                "sha256:440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            ),
            _mirrored(
                _MNIST,
                "train-labels-idx1-ubyte.gz",
                28_881,
                "sha256:3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            ),
            _mirrored(
                _MNIST,
                "t10k-images-idx3-ubyte.gz",
                1_648_877,
                "sha256:8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            ),
            _mirrored(
                _MNIST,
                "t10k-labels-idx1-ubyte.gz",
                4_542,
                "sha256:f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            ),
        ),
    ),
    Source(
        name="fashion-mnist",
        folder="fashion-mnist",
        train=60_000,
        test=10_000,
        classes=(
            *("T-shirt/top", "trouser", "pullover", "dress", "coat"),
            *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
        ),
        shape=(1, 28, 28),
        licence="MIT (Zalando SE)",
        homepage="https://github.com/zalandoresearch/fashion-mnist",
        files=(
            _mirrored(
                _FASHION,
                "train-images-idx3-ubyte.gz",
                26_421_880,
                "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            ),
            _mirrored(_FASHION, "train-labels-idx1-ubyte.gz", 29_515, "md5:25c81989df183df01b3e8a0aad5dffbe"),
            _mirrored(_FASHION, "t10k-images-idx3-ubyte.gz", 4_422_102, "md5:bef4ecab320f06d8554ea6380940ec79"),
            _mirrored(_FASHION, "t10k-labels-idx1-ubyte.gz", 5_148, "md5:bb300cfdad3c16e7a12a480ee83cd310"),
        ),
    ),
    Source(
        name="cifar10",
        folder="cifar-10-batches-bin",
        train=50_000,
        test=10_000,
        classes=(
            *("airplane", "automobile", "bird", "cat", "deer"),
            *("dog", "frog", "horse", "ship", "truck"),
        ),
        shape=(3, 32, 32),
        licence="Krizhevsky 2009; no licence stated, research use",
        homepage="https://www.cs.toronto.edu/~kriz/cifar.html",
        files=tuple(
            File(f"{name}.bin", 30_730_000, f"sha256:{digest}")
            for name, digest in (
                ("data_batch_1", "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
                ("data_batch_2", "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"),
                ("data_batch_3", "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"),
                ("data_batch_4", "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"),
                ("data_batch_5", "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"),
                ("test_batch", "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),
            )
        ),
        archive=_mirrored(
            _CIFAR,
            "cifar-10-binary.tar.gz",
            170_052_171,
            "sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        ),
        max_bytes=200_000_000,
        max_members=100,
    ),
    Source(
        name="speech-commands",
        folder="speech_commands_v0.01",
        train=18_538,
        test=2_567,
        classes=KEYWORDS,
        shape=(1, 50, 10),
        licence="CC BY 4.0 (Warden 2017)",
        homepage="https://arxiv.org/abs/1804.03209",
        archive=_mirrored(
            _SPEECH,
            "speech_commands_v0.01.tar.gz",
            1_489_096_277,
            "sha256:743935421bb51cccdb6bdd152e04c5c70274e935c82119ad7faeec31780d811d",
        ),
        clips=(2377, 2375, 2375, 2359, 2353, 2367, 2367, 2357, 2380, 2372),
        validation=2_577,
        max_bytes=3_000_000_000,
        max_members=70_000,
    ),
    Source(
        name="speech-commands-v2",
        folder="speech_commands_v0.02",
        train=30_769,
        test=4_074,
        classes=KEYWORDS,
        shape=(1, 50, 10),
        licence="CC BY 4.0 (Warden 2018)",
        homepage="https://arxiv.org/abs/1804.03209",
        archive=_mirrored(
            _SPEECH,
            "speech_commands_v0.02.tar.gz",
            2_428_923_189,
            "sha256:af14739ee7dc311471de98f5f9d2c9191b18aedfe957f4a6ff791c709868ff58",
        ),
        clips=(4044, 3941, 3723, 3917, 3801, 3778, 3845, 3745, 3872, 3880),
        validation=3_703,
        max_bytes=5_000_000_000,
        max_members=120_000,
    ),
)
SOURCES = {source.name: source for source in _ALL}


def find(name: str) -> Source:
    """The data set of that name."""
    if name not in SOURCES:
        raise FedskewError(f"data set {name!r} is not known: choose one of {', '.join(SOURCES)}")
    return SOURCES[name]
