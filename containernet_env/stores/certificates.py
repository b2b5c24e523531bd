"""A CA that is made for one run, and the certificates that it signs for members, client and driver.

Its private key is never written anywhere. Keys of the others are bytes in memory, too (docs/adr/0015).
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from containernet_env.base import clock

# No run takes so long. The begin is in the past: members may have a clock of their own in a virtual machine.
_VALID = timedelta(days=365)
_BEFORE = timedelta(hours=1)
LOOPBACK = "127.0.0.1"
"""By this address the driver reaches a member, inside the member's own network namespace."""


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate and its private key, as PEM."""

    certificate: bytes
    key: bytes = field(repr=False)


class Authority:
    """A new CA. All keys are ECDSA ones on P-256: small, and cheap for a member with a fraction of a core."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("containernet-env, one run")
        self.certificate = self._signed(self._name, self._key, is_authority=True)
        """The CA's own, as PEM."""

    def issue(self, name: str, hosts: Iterable[str] = ()) -> Issued:
        """A certificate for servers and clients of that common name, for these addresses and host names.

        Of a client's certificate with hosts in it etcd requires that the client connects from one of them.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        more: list[x509.ExtensionType] = [
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        ]
        if names := [_host(host) for host in hosts]:
            more.append(x509.SubjectAlternativeName(names))
        encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        pem = key.private_bytes(encoding, form, serialization.NoEncryption())
        return Issued(self._signed(_name(name), key, *more), pem)

    def _signed(
        self, name: x509.Name, key: ec.EllipticCurvePrivateKey, *more: x509.ExtensionType, is_authority: bool = False
    ) -> bytes:
        """A certificate of that key, as PEM, with ``more`` that is not critical."""
        now = datetime.fromtimestamp(clock.time(), UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _BEFORE)
            .not_valid_after(now + _VALID)
            .add_extension(x509.BasicConstraints(is_authority, 0 if is_authority else None), critical=True)
            .add_extension(_usage(is_authority), critical=True)
        )
        own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        for extension in (own, x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), *more):
            builder = builder.add_extension(extension, critical=False)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def client_context(authority: Authority, issued: Issued) -> ssl.SSLContext:
    """The connection settings for a client of that certificate; it accepts servers of the CA alone."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=authority.certificate.decode())
    # OpenSSL takes a key from a file only: this one has no name and is in memory.
    file = os.memfd_create("containernet-env-certificate", os.MFD_CLOEXEC)
    try:
        os.write(file, issued.certificate + issued.key)
        context.load_cert_chain(f"/proc/self/fd/{file}")
    finally:
        os.close(file)
    return context


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
