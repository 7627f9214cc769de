"""The README's example runs, is eight lines long, and its two commands exist."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_the_python_example_runs(tmp_path):
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(example.strip().splitlines()) == 8
    done = subprocess.run([sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True, check=True)
    accuracies = [float(a) for a in re.findall(r"(\d+\.\d)%", done.stdout)]
    assert len(accuracies) == 2
    assert accuracies[1] < accuracies[0] - 10  # iid, then one class a client


def test_pictures_and_pages_it_names_are_there():
    named = re.findall(r"\]\(((?!http)[^)#]+)", README)
    assert "docs/architecture.md" in named
    assert any(name.endswith((".svg", ".png")) for name in named)
    assert all((ROOT / name).exists() for name in named)


def test_make_help_lists_every_target():
    help_text = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    makefile = (ROOT / "Makefile").read_text()
    (phony,) = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert all(f"make {target} " in help_text for target in phony.split())
