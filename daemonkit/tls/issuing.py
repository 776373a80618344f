# SPDX-License-Identifier: Apache-2.0
"""What all certificates that we issue have in common."""

import datetime as dt

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa


def certificate_builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey,
    not_before: dt.datetime,
    not_after: dt.datetime,
) -> x509.CertificateBuilder:
    """A certificate of `key` without extensions, to be signed."""
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(not_before)
        .not_valid_after(not_after)
    )


def authority_usage(*, digital_signature: bool = False, crl_sign: bool = False) -> x509.KeyUsage:
    """The key usage of an authority: it signs certificates."""
    return x509.KeyUsage(
        digital_signature=digital_signature,
        key_cert_sign=True,
        crl_sign=crl_sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
