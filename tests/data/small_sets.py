"""Small data sets in their official layouts, and mirrors that are real HTTP servers with real faults."""

import hashlib
import http.server
import threading
import wave
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from fedskew.data.sources import KEYWORDS, File, Source


class Mirror(http.server.ThreadingHTTPServer):
    """Serves `files` on loopback; `asked` keeps each request as (name, Range header or None)."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.asked: list[tuple[str, str | None]] = []
        self.ranges = True  # False: the Range header is ignored
        self.shift = 0  # sends bytes from another place than asked
        self.cut: list[int] = []  # the next answers stop after so many bytes
        self.status = 200

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{name}"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Mirror

    def do_GET(self):
        name, mirror = self.path.strip("/"), self.server
        asked = self.headers.get("Range")
        mirror.asked.append((name, asked))
        if mirror.status != 200 or name not in mirror.files:
            self.send_error(mirror.status if mirror.status != 200 else 404)
            return
        body, start = mirror.files[name], 0
        if asked and mirror.ranges:
            start = int(asked.removeprefix("bytes=").rstrip("-")) + mirror.shift
            if start >= len(body):
                self.send_error(416)
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        else:
            self.send_response(200)
        body = body[start:]
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: mirror.cut.pop(0)] if mirror.cut else body)

    def log_message(self, *args):
        pass


@contextmanager
def serving():
    mirror = Mirror()
    thread = threading.Thread(target=mirror.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield mirror
    finally:
        mirror.shutdown()
        mirror.server_close()
        thread.join()


def official(name: str, body: bytes, *mirrors: str, algorithm: str = "sha256") -> File:
    return File(name, len(body), f"{algorithm}:{hashlib.new(algorithm, body).hexdigest()}", mirrors)


def write_wav(path: Path, samples, rate=16_000, channels=1, width=2) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as f:
        f.setnchannels(channels)
        f.setsampwidth(width)
        f.setframerate(rate)
        f.writeframes(np.asarray(samples).astype({1: np.uint8, 2: "<i2"}[width]).tobytes())


def small_speech(home: Path) -> Source:
    """Ten words of four clips by four speakers: two to train on, one to validate, one to test."""
    rng = np.random.default_rng(7)
    for word in KEYWORDS:
        for speaker in ("aa", "bb", "cc", "dd"):
            write_wav(home / word / f"{speaker}_nohash_0.wav", rng.normal(0, 3000, rng.integers(9_000, 16_500)))
    (home / "validation_list.txt").write_text("".join(f"{w}/cc_nohash_0.wav\n" for w in (*KEYWORDS, "bed")))
    (home / "testing_list.txt").write_text("".join(f"{w}/dd_nohash_0.wav\n" for w in (*KEYWORDS, "bed")))
    return Source(
        name="speech-commands",
        folder=home.name,
        train=20,
        test=10,
        classes=KEYWORDS,
        shape=(1, 50, 10),
        licence="none",
        homepage="none",
        clips=(4,) * 10,
        validation=10,
        max_bytes=10_000_000,
        max_members=1_000,
    )


def same(a, b):
    """Whether two sets of labels are one."""
    return (a.y == b.y).all() and a.classes == b.classes and a.name == b.name
