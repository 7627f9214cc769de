"""Who may ask: case 30 of the faults. Real requests to a real server."""

from __future__ import annotations

import http.client
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from dashboards import dashboard, events, served

from fedskew.errors import FedskewError
from fedskew.web.guard import LOOPBACK, Rules
from fedskew.web.serve import Place, listen

TOKEN = "a-token-of-enough-length"


@pytest.fixture(scope="module")
def site(filled: Path):
    with served(filled) as site:
        yield site


def status(site, path="/api/about", **headers):
    return site.ask(path, **headers)[0]


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "evil.example:80", "", "127.0.0.2", "[::1"])
def test_another_name_is_refused(site, host):
    assert status(site, host=host) == 403
    assert status(site, "/", host=host) == 403
    assert status(site, "/static/app.js", host=host) == 403


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST:8765", "[::1]:99"])
def test_the_names_of_loopback_are_ours(site, host):
    assert status(site, host=host) == 200


@pytest.mark.parametrize("origin", ["http://localhost.evil.example", "null", "http://127.0.0.1:1", "file://"])
def test_a_page_from_elsewhere_is_refused(site, origin):
    assert status(site, origin=origin) == 403
    assert status(site, origin=site.address) == 200


def test_a_cross_site_request_is_refused_even_without_an_origin(site):
    assert status(site, sec_fetch_site="cross-site", sec_fetch_mode="no-cors") == 403
    assert status(site, "/", sec_fetch_site="cross-site", sec_fetch_mode="navigate") == 200  # a link to the page
    assert status(site, sec_fetch_site="same-origin", sec_fetch_mode="cors") == 200


def test_the_page_may_load_nothing_from_elsewhere(site):
    connection = http.client.HTTPConnection(urlsplit(site.address).netloc)
    for path in ("/", "/api/about", "/static/style.css", "/nothing"):
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "http" not in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
    connection.close()


def test_nothing_can_be_changed_unless_it_was_allowed(site):
    before = {entry.id for entry in site.store.runs()}
    some = next(iter(before))
    for path in ("/api/runs", f"/api/runs/{some}/stop", f"/api/runs/{some}/resume"):
        assert site.ask(path, body={})[0] in (404, 405)
    assert {entry.id for entry in site.store.runs()} == before
    assert site.ask("/api/about")[1]["control"] is False


@pytest.mark.parametrize(
    "path", ["/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/static//x/passwd"]
)
def test_no_file_beside_the_page_is_given(site, path):
    connection = http.client.HTTPConnection(urlsplit(site.address).netloc)
    connection.request("GET", path)  # which, unlike urllib, leaves dots as they are
    answer = connection.getresponse()
    assert answer.status == 404
    assert b"import" not in answer.read()
    connection.close()


def test_a_token_opens_the_data_and_nothing_else_does(filled):
    with served(filled, token=TOKEN) as site:
        assert status(site) == 200
        site.headers = {}
        code, told = site.ask("/api/about")
        assert code == 401
        assert "token" in told["error"]
        assert site.ask("/")[0] == 200  # the page itself holds no data
        assert status(site, authorization="Bearer wrong") == 401
        assert status(site, "/api/about?token=wrong") == 401
        assert status(site, authorization=f"Bearer {TOKEN}") == 200
        connection = http.client.HTTPConnection(urlsplit(site.address).netloc)
        connection.request("GET", f"/?token={TOKEN}")
        answer = connection.getresponse()
        answer.read()
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        connection.request("GET", "/?token=wrong")
        answer = connection.getresponse()
        answer.read()
        assert answer.headers["set-cookie"] is None
        connection.close()
        assert status(site, cookie=cookie.split(";")[0]) == 200
        assert status(site, cookie=cookie.split(";")[0][:-1]) == 401


def test_another_address_needs_a_flag_and_gets_a_token():
    with pytest.raises(FedskewError, match="--allow-remote"):
        Place(host="0.0.0.0").checked()
    with pytest.raises(FedskewError, match="--allow-remote"):
        Place(host="192.0.2.7", token=TOKEN).checked()
    assert len(Place(host="0.0.0.0", remote=True).checked().token or "") >= 24
    assert Place(host="0.0.0.0", remote=True, token=TOKEN).checked().token == TOKEN
    with pytest.raises(FedskewError, match="at least 12"):
        Place(remote=True, token="short").checked()
    assert Place().checked().token is None
    assert Place(host="::1").checked().token is None
    assert Place(control=True).checked().token  # other users of this machine reach loopback, too


def test_a_server_on_every_address_answers_to_addresses_but_not_to_names():
    rules = Rules(LOOPBACK | {"box"}, addresses=True)
    assert rules.host("192.0.2.7:8765")
    assert rules.host("box:8765")
    assert not rules.host("evil.example:8765")


def test_a_chosen_port_that_is_taken_is_an_error_in_one_line(capsys):
    with listen(Place(port=0)) as taken, pytest.raises(FedskewError, match="choose another --port"):
        listen(Place(port=taken.getsockname()[1]))


def test_the_command_says_what_to_install(tmp_path):
    script = "import sys; sys.modules['fastapi'] = None; from fedskew.cli import main; main(['ui', '--no-browser'])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "fedskew: fedskew ui needs fastapi: pip install 'fedskew[web]'"
    assert done.stdout == ""


def test_the_command_refuses_in_one_line(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "fedskew", "ui", "--no-browser", "--host", "0.0.0.0"], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "--allow-remote" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_command_prints_its_address_and_ends_on_ctrl_c(filled):
    with dashboard(filled, "--token", TOKEN) as address:
        assert address.startswith("http://127.0.0.1:")
        assert address.endswith(f"/?token={TOKEN}")
        stream = events(address.split("/?")[0], headers={"authorization": f"Bearer {TOKEN}"})
        assert next(stream)[0] == "runs"
        began = time.monotonic()  # an open page neither holds it up nor makes it complain
    assert time.monotonic() - began < 10
    assert list(stream) == []
