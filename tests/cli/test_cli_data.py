"""`fedskew data`: what it prints, what it exits with, and a download through the whole command."""

import functools
import hashlib
import http.server
import json
import threading
from dataclasses import replace

import pytest

from fedskew.cli import main
from fedskew.data.sources import SOURCES, File


@pytest.fixture
def run(monkeypatch, tmp_path, capsys):
    """A function that runs the command line and gives exit status, standard output and standard error."""
    monkeypatch.setenv("FEDSKEW_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("no_proxy", "*")

    def run_(*args):
        with pytest.raises(SystemExit) as e:
            main(["data", *args])
        out, err = capsys.readouterr()
        return e.value.code, out, err

    return run_


@pytest.fixture
def served(tmp_path, monkeypatch):
    """mnist with four small files on a real server; gives the folder that is served."""
    site = tmp_path / "site"
    site.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    files = []
    for file in SOURCES["mnist"].files:
        body = file.name.encode() * 1000
        (site / file.name).write_bytes(body)
        url = f"http://127.0.0.1:{server.server_port}/{file.name}"
        files.append(File(file.name, len(body), f"sha256:{hashlib.sha256(body).hexdigest()}", (url,)))
    monkeypatch.setitem(SOURCES, "mnist", replace(SOURCES["mnist"], files=tuple(files)))
    yield site
    server.shutdown()
    server.server_close()
    thread.join()


def test_list(run, served):
    code, out, _ = run("list")
    assert code == 0
    for name in ("digits", "mnist", "fashion-mnist", "cifar10", "speech-commands", "speech-commands-v2"):
        assert name in out
    code, out, err = run("list", "--json")
    document = json.loads(out)
    assert (code, err) == (0, "")
    rows = {d["name"]: d for d in document["datasets"]}
    assert (rows["digits"]["present"], rows["mnist"]["present"]) == (True, False)
    assert (rows["cifar10"]["train"], rows["cifar10"]["shape"]) == (50_000, [3, 32, 32])
    assert rows["cifar10"]["download"] == 170_052_171
    assert "CC BY 4.0" in rows["speech-commands"]["licence"]
    run("get", "mnist")
    _, out, _ = run("list", "--json")
    assert {d["name"]: d["present"] for d in json.loads(out)["datasets"]}["mnist"]


def test_path(run, tmp_path):
    assert run("path") == (0, f"{tmp_path / 'data'}\n", "")
    code, out, _ = run("path", "--json")
    assert (code, json.loads(out)) == (0, {"folder": str(tmp_path / "data"), "exists": False})


@pytest.mark.network
def test_get_then_check(run, served, tmp_path):
    code, out, err = run("get", "mnist", "--json")
    document = json.loads(out)
    assert code == 0
    assert "download train-images-idx3-ubyte.gz" in err
    assert document["changed"]
    assert document["path"] == str(tmp_path / "data" / "mnist")
    assert [f["state"] for f in document["files"]] == ["ok"] * 4
    code, out, err = run("get", "mnist")
    assert (code, err) == (0, "")
    assert "was there already and is whole" in out
    code, out, _ = run("check", "mnist", "--json")
    assert code == 0
    assert json.loads(out)["ok"]

    (tmp_path / "data/mnist/t10k-labels-idx1-ubyte.gz").write_bytes(b"cut")
    code, out, _ = run("check", "mnist", "--json")
    document = json.loads(out)
    assert (code, document["ok"]) == (1, False)
    assert document["datasets"][0]["state"] == "damaged"
    assert [f["state"] for f in document["datasets"][0]["files"]] == ["ok", "ok", "ok", "damaged"]
    code, out, _ = run("check")
    assert code == 1
    assert "damaged" in out
    assert run("get", "mnist")[0] == 0
    assert run("check", "mnist")[0] == 0


def test_check_of_what_is_not_there(run):
    code, out, _ = run("check", "cifar10")
    assert code == 1
    assert "missing" in out
    code, out, _ = run("check", "--json")
    document = json.loads(out)
    assert (code, document["ok"]) == (0, True), "a set nobody got is no fault"
    assert {d["name"]: d["state"] for d in document["datasets"]}["digits"] == "ok"
    assert run("check", "digits")[0] == 0


@pytest.mark.network
def test_get_that_fails_is_one_line(run, served, tmp_path):
    (served / "t10k-images-idx3-ubyte.gz").write_bytes(b"x" * 25_000)
    code, out, err = run("get", "mnist", "--json")
    assert (code, out) == (2, "")
    told = [line for line in err.splitlines() if line.startswith("fedskew: ")]
    assert len(told) == 1
    assert "t10k-images-idx3-ubyte.gz could not be downloaded" in told[0]
    assert "expected sha256" in told[0]
    assert not (tmp_path / "data/mnist/t10k-images-idx3-ubyte.gz").exists()


def test_get_from_a_folder(run, served, tmp_path):
    code, out, _ = run("get", "mnist", "--from", str(served))
    assert code == 0
    assert "mnist is in place" in out
    assert run("check", "mnist")[0] == 0
    code, _, err = run("get", "cifar10", "--from", str(served))
    assert code == 2
    assert "holds neither cifar-10-binary.tar.gz nor cifar-10-batches-bin/data_batch_1.bin" in err


def test_names(run):
    code, out, _ = run("get", "digits")
    assert code == 0
    assert "comes with the installation" in out
    for command in ("get", "check"):
        code, _, err = run(command, "cifar")
        assert code == 2
        assert "data set 'cifar' is not known: choose one of digits, mnist" in err
    for command in ("list", "get", "check", "path"):
        code, out, _ = run(command, "--help")
        assert code == 0
        assert "xample" in out
