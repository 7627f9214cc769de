"""The house: what is exported, which way imports point, what tests may not contain."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fedskew

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "fedskew"

# From the ground up; a room may import from its own floor's own room and from the floors below.
FLOORS = [
    {"errors", "rng", "shown", "signals", "tree"},
    {"spec"},
    {"data", "models"},
    {"measure"},
    {"engine"},
    {"algorithms", "prepare"},
    {"run"},
    {"sides"},
    {"laboratory"},
    {"rounds"},
    {"experiment", "bench"},
    {"store"},
    {"sweep", "flower"},
    {"report"},
    {"compare", "demo", "grid", "papers"},
    {"reproduce"},
    {"web"},
    {"cli"},
]
FLOOR = {room: height for height, rooms in enumerate(FLOORS) for room in rooms}


def imports_of(path: Path) -> set[str]:
    """The fedskew rooms that a file imports, wherever in it the import stands."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{a.name}" for a in node.names}
    return {name.split(".")[1] for name in found if name.startswith("fedskew.")} & set(FLOOR)


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


MODULES = [p for p in sorted(SOURCE.rglob("*.py")) if room_of(p) not in ("__init__", "__main__")]


def test_every_room_is_on_the_map():
    assert {room_of(p) for p in MODULES} == set(FLOOR)
    written = (ROOT / "docs" / "architecture.md").read_text()
    assert all(room in written for room in FLOOR)


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_point_down(path):
    room = room_of(path)
    wrong = {other for other in imports_of(path) - {room} if FLOOR[other] >= FLOOR[room]}
    assert not wrong, f"{room} imports {wrong}, which stand as high or higher"


def test_the_dashboard_never_imports_what_trains():
    training = {"engine", "experiment", "rounds", "laboratory", "algorithms", "sweep", "bench"}
    assert [p.name for p in MODULES if room_of(p) == "web" and imports_of(p) & training] == []
    script = "import sys, fedskew.web.app; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_the_exported_names():
    classes = ["Dataset", "FedskewError", "Row", "Run", "Store"]
    assert fedskew.__all__ == [*classes, "from_arrays", "load", "train", "train_together"]
    assert all(hasattr(fedskew, name) for name in fedskew.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        fedskew.nope  # noqa: B018


@pytest.mark.parametrize(
    "module", ["fedskew", "fedskew.cli", "fedskew.flower", "fedskew.measure", "fedskew.data.partition"]
)
def test_the_doors_start_without_torch(module):
    script = f"import sys, {module}; print([m for m in ('torch', 'altair', 'sklearn', 'flwr') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_nothing_is_unpickled():
    unsafe = re.compile(
        r"import pickle|pickle\.load|allow_pickle=True|weights_only=False|(?<!safetensors\.)torch\.load\("
    )
    assert [p.name for p in MODULES if unsafe.search(p.read_text())] == []


def test_no_absolute_path_and_no_foreign_host_in_tests():
    host = re.compile(r"https?://(?!127\.0\.0\.1|localhost)[A-Za-z0-9]")
    path = re.compile(r"""["'](/(?:home|root|Users|work|tmp|mnt|opt)/)""")
    for test in sorted((ROOT / "tests").rglob("*.py")):
        text = test.read_text()
        assert not host.findall(text), test.name
        assert not path.findall(text), test.name
