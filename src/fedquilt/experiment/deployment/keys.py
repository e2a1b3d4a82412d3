"""Keys and certificates: those of sites, by which the server knows them, and the server's, by which sites know it.

The private key of a site is made at the site and never leaves it. The certificate authority made here is for trying out,
and for those who have none of their own.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from fedquilt.base.errors import RunError
from fedquilt.experiment.deployment.folder import DeploymentFolder

DAYS = 365
LOOPBACK = ("localhost", "127.0.0.1", "::1")


def make_site_key(folder: DeploymentFolder, site: str) -> str:
    """Make the key pair of a site, unless it is there; return the public key as a roster has it."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    private, public = folder.key(site), folder.public_key(site)
    if not private.exists():
        key = ec.generate_private_key(ec.SECP384R1())
        _write_secret(
            private,
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
            ),
        )
        written = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
        public.write_bytes(written + b"\n")
    return " ".join(public.read_text(encoding="utf-8").split()[:2])


def make_certificates(folder: DeploymentFolder, hosts: Sequence[str] = ()) -> None:
    """Make a certificate authority and the server's certificate for some names and addresses, loopback included."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    if folder.certificate.exists():
        raise RunError(f"{folder.certificate}: is there already; remove it to make another one")

    def named(name: str) -> Any:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])

    now = datetime.now(UTC)
    authority_key, server_key = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    authority_id = x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key())
    issued_by = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(authority_id)

    def certificate(name: str, key: Any, authority: bool) -> Any:
        made = x509.CertificateBuilder().subject_name(named(name)).issuer_name(named("fedquilt authority"))
        made = made.public_key(key.public_key()).serial_number(x509.random_serial_number())
        made = made.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(days=DAYS))
        made = made.add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        made = made.add_extension(_usage(authority), critical=True)
        made = made.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        if not authority:
            made = made.add_extension(issued_by, critical=False)
            names = [_general_name(host) for host in dict.fromkeys([*LOOPBACK, *hosts])]
            made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return made.sign(authority_key, hashes.SHA384())

    _write_certificate(folder.authority, certificate("fedquilt authority", authority_key, authority=True))
    _write_certificate(folder.certificate, certificate("fedquilt server", server_key, authority=False))
    _write_secret(folder.certificate_key, _private(server_key))
    # The authority's own key is not kept: nobody can make further certificates in its name.


def _usage(authority: bool) -> Any:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> Any:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _private(key: Any) -> bytes:
    from cryptography.hazmat.primitives import serialization

    written: bytes = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return written


def _write_certificate(path: Path, certificate: Any) -> None:
    from cryptography.hazmat.primitives import serialization

    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _write_secret(path: Path, content: bytes) -> None:
    """Write a file that nobody else can read, from its first byte on."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
