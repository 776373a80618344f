# SPDX-License-Identifier: Apache-2.0
"""Where the ring's certificates and keys lie on disk. `devkit.pki` makes them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives import serialization

from devkit import pki
from devkit.files import replace_file


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    certificate: Path
    key: Path

    def write(self, leaf: pki.Leaf) -> None:
        """Replace both, the key first: readers of both reload when the certificate changes."""
        replace_file(self.key, leaf.key_pem, mode=0o600)
        replace_file(self.certificate, leaf.cert_pem)


def write_leaf(leaf: pki.Leaf, stem: Path) -> CertificateFiles:
    """Write `stem`.crt and `stem`.key; a reader finds the old files or the new ones."""
    return CertificateFiles(*leaf.write(stem.parent, stem.name))


def signing_key_pem() -> bytes:
    """A private key for service account tokens.

    The apiserver finds its public half in "EC PRIVATE KEY" (SEC 1), not in PKCS 8.
    """
    return pki.new_key().private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
