# SPDX-License-Identifier: Apache-2.0
"""An issuer of service account tokens, as a tenant's apiserver is: its keys and its tokens (KEP-1205)."""

import base64
import hashlib
import json
import time
from collections.abc import Mapping
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey

# VirtualCluster's sample control planes share this one.
ISSUER = "https://kubernetes.default.svc.cluster.local"
AUDIENCE = "vn-agent"
SUBJECT = "system:serviceaccount:monitoring:prometheus"
LIFETIME_S = 3600.0

_ALGORITHMS: dict[str, Any] = {
    "ES256": jwt.algorithms.ECAlgorithm,
    "ES384": jwt.algorithms.ECAlgorithm,
    "ES512": jwt.algorithms.ECAlgorithm,
    "RS256": jwt.algorithms.RSAAlgorithm,
    "EdDSA": jwt.algorithms.OKPAlgorithm,
}
_CURVES = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}


def new_key(algorithm: str) -> PrivateKey:
    """A key for ES256, ES384, ES512, RS256 or EdDSA."""
    if algorithm in _CURVES:
        return ec.generate_private_key(_CURVES[algorithm])
    if algorithm == "EdDSA":
        return ed25519.Ed25519PrivateKey.generate()
    return rsa.generate_private_key(65537, 2048)


def jwk_of(key: PrivateKey, algorithm: str) -> dict[str, Any]:
    """The public key as an apiserver prints it. Its `kid` is a digest of the key."""
    members = dict(_ALGORITHMS[algorithm].to_jwk(key.public_key(), as_dict=True))
    members.pop("key_ops", None)
    digest = hashlib.sha256(json.dumps(members, sort_keys=True).encode()).digest()
    kid = base64.urlsafe_b64encode(digest).decode().rstrip("=")
    return {"use": "sig", "kid": kid, "alg": algorithm, **members}


class TokenIssuer:
    """`key` signs; `jwk` is its public half."""

    def __init__(self, algorithm: str = "ES256", issuer: str = ISSUER) -> None:
        self.algorithm = algorithm
        self.issuer = issuer
        self.key = new_key(algorithm)
        self.jwk = jwk_of(self.key, algorithm)

    def jwks(self, *others: Mapping[str, Any]) -> bytes:
        """What `kubectl get --raw /openid/v1/jwks` prints."""
        return json.dumps({"keys": [self.jwk, *others]}).encode()

    def claims(self, now_s: float | None = None, **changes: Any) -> dict[str, Any]:
        """Those of a TokenRequest; `changes` replace some, and None removes one."""
        now = int(time.time() if now_s is None else now_s)
        found = {
            "aud": [AUDIENCE],
            "exp": now + int(LIFETIME_S),
            "iat": now,
            "iss": self.issuer,
            "jti": "62f6cc13-b7a2-4bfe-9d2c-1d7d9c3a5d0a",
            "kubernetes.io": {
                "namespace": "monitoring",
                "serviceaccount": {"name": "prometheus", "uid": "a4a3a7f2-2c0e-43a0-9d0d-0d0f2f6e7a11"},
            },
            "nbf": now,
            "sub": SUBJECT,
            **changes,
        }
        return {name: value for name, value in found.items() if value is not None}

    def token(self, now_s: float | None = None, **changes: Any) -> str:
        """A token with these claims."""
        return self.sign(self.claims(now_s, **changes))

    def sign(self, claims: Mapping[str, Any], **header: Any) -> str:
        """`header` replaces what the token's own has."""
        return jwt.encode(
            dict(claims), self.key, algorithm=self.algorithm, headers={"kid": self.jwk["kid"], **header}
        )


def segment(value: object) -> str:
    """A part of a token from JSON."""
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")
