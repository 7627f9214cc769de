"""The GPU kernels are held to torch and to the loop on any machine, through Triton's interpreter."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_kernels_equal_torch_and_the_loop():
    pytest.importorskip("triton")
    script = Path(__file__).with_name("interpreted.py")
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "every kernel agrees" in done.stdout
