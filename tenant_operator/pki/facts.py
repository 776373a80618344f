# SPDX-License-Identifier: Apache-2.0
"""What is kept of certificates and of Secrets that hold keys: facts and digests, never a key.

Certificates are read by our own parser (`tenancy.x509`), so a process that issues nothing never loads
`cryptography`.
"""

import base64
import hashlib
from collections.abc import Iterable, Mapping

import msgspec

from tenancy import keys, x509

BEGIN_CERTIFICATE, _END = b"-----BEGIN CERTIFICATE-----", b"-----END CERTIFICATE-----"


JUDGED_BY = (keys.DATA_DIGEST, keys.KEY_IDS, keys.ROTATION_PHASE, keys.ROTATION_TOKEN)
"""Annotations of a Secret with keys, without which no daemon knows which key is in use."""


class CertificateFacts(msgspec.Struct, frozen=True):
    """One certificate. Times are seconds since 1970; identifiers and the SHA-256 of its SPKI are lower-case
    hex.

    `names` are the DNS names and addresses that it is valid for.
    """

    not_before: float
    not_after: float
    spki_sha256: str
    key_id: str = ""
    authority_key_id: str = ""
    names: tuple[str, ...] = ()

    def is_signed_by(self, authority: "CertificateFacts") -> bool:
        """Whether it identifies this authority's key as the one that signed it. The signature is not
        checked."""
        return bool(authority.key_id) and self.authority_key_id == authority.key_id


class SecretFacts(msgspec.Struct, frozen=True):
    """A Secret without its keys: digests of its values, and the first certificate of each value that has one.

    A certificate is None if it cannot be read.
    """

    annotations: Mapping[str, str] = {}
    digests: Mapping[str, str] = {}
    certificates: Mapping[str, CertificateFacts | None] = {}

    @property
    def is_as_written(self) -> bool:
        """Whether its data is what the operator wrote: an edit by hand changes the digest."""
        return self.annotations.get(keys.DATA_DIGEST) == data_digest(self.digests)

    @property
    def certificate(self) -> CertificateFacts | None:
        """The one that it is for."""
        return self.certificates.get("tls.crt")


def facts_of(certificate: bytes) -> CertificateFacts:
    """Facts of a certificate in DER, or of the first one in PEM. Raises ValueError."""
    der = der_of(certificate) if certificate.startswith(BEGIN_CERTIFICATE) else certificate
    begin, end = x509.validity(der)
    return CertificateFacts(
        begin,
        end,
        x509.spki_sha256(der),
        (x509.subject_key_identifier(der) or b"").hex(),
        (x509.authority_key_identifier(der) or b"").hex(),
        x509.host_sans(der),
    )


def secret_facts(
    annotations: Mapping[str, str], digests: Mapping[str, str], certificates: Mapping[str, bytes]
) -> SecretFacts:
    """What is kept of a Secret. `certificates` are its values that are public, by their keys."""
    found = {key: _facts_or_none(value) for key, value in certificates.items()}
    return SecretFacts(annotations, digests, found)


def digest_of(value: bytes) -> str:
    """The digest of one value of a Secret or ConfigMap."""
    return hashlib.sha256(value).hexdigest()[:32]


def data_digest(digests: Mapping[str, str]) -> str:
    """The digest of a Secret's whole data, from those of its values."""
    lines = (f"{key}={digests[key]}\n" for key in sorted(digests))
    return digest_of("".join(lines).encode())


def bundle_of(certificates: Iterable[bytes]) -> bytes:
    """Authorities that are trusted together, as one PEM file: each once.

    Sorted: the file stays as it is when the next authority begins to sign, and no program restarts for it.
    """
    texts = {each.decode("ascii").strip() + "\n" for each in certificates if each}
    return "".join(sorted(texts)).encode()


def valid_certificates(pem: bytes, now: float) -> list[bytes]:
    """The certificates of a PEM file that have not expired, in their order. What is none is left out."""
    found = []
    for each in pem.split(BEGIN_CERTIFICATE)[1:]:
        certificate = BEGIN_CERTIFICATE + each
        facts = _facts_or_none(certificate)
        if facts is not None and now < facts.not_after:
            found.append(certificate)
    return found


def der_of(pem: bytes) -> bytes:
    """The first certificate in a PEM file. Raises ValueError."""
    body, end, _ = pem.removeprefix(BEGIN_CERTIFICATE).partition(_END)
    if not end:
        raise ValueError("a certificate is not closed")
    return base64.b64decode(b"".join(body.split()), validate=True)


def _facts_or_none(certificate: bytes) -> CertificateFacts | None:
    try:
        return facts_of(certificate)
    except ValueError:
        return None
