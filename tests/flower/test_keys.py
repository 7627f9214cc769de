"""Certificates that TLS accepts, and refuses when it should; keys that only their owner can read."""

import socket
import ssl
import stat
import threading

import pytest
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from fedskew.flower import keys

HOSTS = ["localhost", "127.0.0.1", "fed.example"]


def shaken(server, trusted, name="127.0.0.1"):
    """One TLS handshake over a real socket between a server with these keys and a client that trusts those."""
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(server / "server.pem", server / "server.key")
    client = ssl.create_default_context(cafile=trusted / "ca.crt")
    client.verify_flags |= ssl.VERIFY_X509_STRICT  # Python 3.13's default
    here, there = socket.socketpair()

    def accept():
        try:
            serving.wrap_socket(there, server_side=True).close()
        except OSError:
            there.close()

    thread = threading.Thread(target=accept)
    thread.start()
    try:
        with client.wrap_socket(here, server_hostname=name) as secure:
            return secure.version()
    finally:
        here.close()
        thread.join()


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ours")
    keys.write(folder, 2, HOSTS)
    return folder


@pytest.mark.parametrize("name", HOSTS)
def test_a_node_that_trusts_the_authority_is_let_in_under_every_name(ours, name):
    assert shaken(ours, ours, name) == "TLSv1.3"


def test_another_authority_another_name_and_an_old_certificate_are_refused(ours, tmp_path):
    keys.write(tmp_path, 0, HOSTS, days=-1)
    with pytest.raises(ssl.SSLCertVerificationError, match="unable to get local issuer"):
        shaken(ours, tmp_path)
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        shaken(tmp_path, tmp_path)
    with pytest.raises(ssl.SSLCertVerificationError, match=r"not valid for 'other\.example'"):
        shaken(ours, ours, "other.example")


def test_private_files_are_for_their_owner_and_the_authoritys_key_is_gone(ours):
    assert sorted(p.name for p in ours.iterdir()) == [
        *("ca.crt", "node0", "node0.pub", "node1", "node1.pub", "server.key", "server.pem"),
    ]
    for name in ("server.key", "node0", "node1"):
        assert stat.S_IMODE((ours / name).stat().st_mode) == 0o600
    assert b"PRIVATE" not in (ours / "ca.crt").read_bytes()


def test_a_nodes_two_keys_belong_together(ours):
    private = load_ssh_private_key((ours / "node1").read_bytes(), None)
    public = load_ssh_public_key((ours / "node1.pub").read_bytes())
    assert private.public_key() == public
    assert (ours / "node0.pub").read_bytes() != (ours / "node1.pub").read_bytes()
