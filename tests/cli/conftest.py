import pytest

from fedskew.cli import main


@pytest.fixture
def fedskew(capsys):
    """Run a command in this process; its exit status, standard output and standard error."""

    def run(*args):
        capsys.readouterr()
        with pytest.raises(SystemExit) as e:
            main([str(a) for a in args])
        captured = capsys.readouterr()
        return e.value.code, captured.out, captured.err

    return run
