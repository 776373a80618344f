# SPDX-License-Identifier: Apache-2.0
"""Keys of service accounts as vc-signer reads them, and tokens, read without our code."""

import base64
import hashlib
import json
from dataclasses import dataclass

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec


@dataclass(frozen=True, slots=True)
class AccountKey:
    """A key on P-256, with what a Secret has of it."""

    private: ec.EllipticCurvePrivateKey

    @classmethod
    def create(cls) -> "AccountKey":
        return cls(ec.generate_private_key(ec.SECP256R1()))

    @property
    def der(self) -> bytes:
        return self.private.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )

    @property
    def kid(self) -> str:
        return base64.urlsafe_b64encode(hashlib.sha256(self.der).digest()).rstrip(b"=").decode()

    @property
    def signing(self) -> dict[str, bytes]:
        pem = self.private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return {"signing.pem": pem}

    @property
    def public(self) -> dict[str, bytes]:
        return {f"{self.kid}.pub": public_pem(self.private.public_key())}

    def signs_again(self, token: str) -> str:
        """The claims of a token in one of this key."""
        claims = jwt.decode(token, options={"verify_signature": False})
        return jwt.encode(claims, self.private, algorithm="ES256", headers={"kid": self.kid})


def public_pem(key: ec.EllipticCurvePublicKey) -> bytes:
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def files(signing: AccountKey, *verifying: AccountKey) -> dict[str, bytes]:
    """A Secret's content: one key signs, it and others verify."""
    found = dict(signing.signing)
    for each in (signing, *verifying):
        found |= each.public
    return found


def kid_of(token: str) -> str:
    """The key that a token names."""
    header = token.partition(".")[0]
    kid: str = json.loads(base64.urlsafe_b64decode(header + "=" * (-len(header) % 4)))["kid"]
    return kid
