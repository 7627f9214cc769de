"""Certificates and keys of a federation: an authority of its own, the server's certificate, a key a node."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_DAYS, SERVER_DAYS = 3650, 365


@dataclass(frozen=True)
class Authority:
    """What signs the server's certificate; nodes trust its certificate and nothing else."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def new(cls) -> Authority:
        """An authority for one federation."""
        key, name = ec.generate_private_key(ec.SECP384R1()), _name("fedskew federation")
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        built = (
            _begun(name, name, key, timedelta(days=AUTHORITY_DAYS))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
        )
        return cls(key, built.sign(key, hashes.SHA384()))

    def issue(self, hosts: Sequence[str], days: float = SERVER_DAYS) -> tuple[bytes, bytes]:
        """Certificate and key, in PEM, of a server with these names and addresses; negative days: one that is over."""
        key = ec.generate_private_key(ec.SECP384R1())
        signer = x509.SubjectKeyIdentifier.from_public_key(self.key.public_key())
        built = (
            _begun(_name(hosts[0]), self.certificate.subject, key, timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([_host(h) for h in hosts]), critical=False)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(signer), critical=False)
        )
        certificate = built.sign(self.key, hashes.SHA384())
        return certificate.public_bytes(serialization.Encoding.PEM), _private(key, serialization.PrivateFormat.PKCS8)


def write(folder: Path, nodes: int, hosts: Sequence[str], days: float = SERVER_DAYS) -> None:
    """ca.crt, server.pem, server.key and node0, node0.pub, ...; private ones for their owner's eyes only.

    The authority's own key is thrown away: a federation's server has one certificate, and a new one a new authority.
    """
    authority = Authority.new()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    certificate, key = authority.issue(hosts, days)
    (folder / "ca.crt").write_bytes(authority.certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "server.pem").write_bytes(certificate)
    _secret(folder / "server.key", key)
    for i in range(nodes):
        write_node(folder / f"node{i}")


def write_node(path: Path) -> None:
    """A node's key pair as OpenSSH writes it: the private key at `path`, the public one beside it."""
    key = ec.generate_private_key(ec.SECP384R1())
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    _secret(path, _private(key, serialization.PrivateFormat.OpenSSH))
    path.with_suffix(".pub").write_bytes(public + b"\n")


def _secret(path: Path, data: bytes) -> None:
    path.touch(mode=0o600)  # before anything is in it
    path.chmod(0o600)
    path.write_bytes(data)


def _private(key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def _begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, lasts: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    since = min(now, now + lasts) - timedelta(days=1)  # clocks differ
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(since)
        .not_valid_after(now + lasts)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)
