# SPDX-License-Identifier: Apache-2.0
"""Decides on a bearer token (RFC 6750) that is a JSON Web Token: Kubernetes' tokens of service accounts are
the model (KEP-1205).

`decide` is total: a token is verified for the tenant whose port received it, or has one `TokenFault`. The
keys and the terms are that tenant's alone. A token cannot name a tenant: many clusters have the same issuer.
"""

import base64
import enum
import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import msgspec

from vnagent.core.head import Fields
from vnagent.core.jwks import ALGORITHMS

# Kubernetes' tokens have 1 KB. A longer one is not decoded.
MAX_TOKEN_BYTES = 8 * 1024
# Between the clocks of issuer and node: as Kubernetes' own apiserver (go-jose, jwt.DefaultLeeway).
LEEWAY_S = 60.0

_BEARER = re.compile(rb"[Bb][Ee][Aa][Rr][Ee][Rr] ++([^ ]++)")
# The compact serialization of a JWS (RFC 7515, 7.1).
_TOKEN = re.compile(rb"([A-Za-z0-9_-]++)\.[A-Za-z0-9_-]++\.[A-Za-z0-9_-]++")


class TokenFault(enum.StrEnum):
    """Why a token is refused: for audit lines and metrics. A client gets one sentence for all."""

    MISSING = "token-missing"
    MALFORMED = "token-malformed"
    TOO_LARGE = "token-too-large"
    ALGORITHM = "token-algorithm"
    KEY = "token-key-unknown"
    SIGNATURE = "token-signature"
    ISSUER = "token-issuer"
    AUDIENCE = "token-audience"
    SUBJECT = "token-subject"
    EXPIRED = "token-expired"
    NOT_YET_VALID = "token-not-yet-valid"
    # The tenant of the port is not registered on this node, or no longer.
    TENANT = "token-tenant-unregistered"
    # Not checked: too many others were.
    TOO_MANY = "too-many-tokens"


class TokenTerms(NamedTuple):
    """What a token of the tenant must have. `subjects` are compared as a whole."""

    tenant: str
    issuer: str
    audience: str
    subjects: frozenset[str]


class VerifiedToken(NamedTuple):
    """A token that was signed by a key of the tenant, and has its terms. `identity` names issuer and
    subject in audit lines. `not_after_s` is since 1970, with the leeway."""

    tenant: str
    identity: str
    not_after_s: float

    def is_expired(self, now_s: float) -> bool:
        return now_s > self.not_after_s


class SignatureKey(Protocol):
    """A public key with the algorithms of its type."""

    @property
    def algorithms(self) -> frozenset[str]: ...

    def payload_of(self, token: bytes, algorithm: str) -> bytes | None:
        """The signed payload; None if the signature is not this key's."""


class _Header(msgspec.Struct):
    alg: str
    kid: str | None = None
    # Extensions that must be understood (RFC 7515, 4.1.11): none is.
    crit: Any = None


class _Claims(msgspec.Struct):
    """RFC 7519, 4.1. Booleans and text are no numbers here."""

    exp: float
    iss: str = ""
    sub: str = ""
    aud: str | tuple[str, ...] = ()
    nbf: float = 0.0
    iat: float = 0.0


_decode_header = msgspec.json.Decoder(_Header).decode
_decode_claims = msgspec.json.Decoder(_Claims).decode


def token_of(fields: Fields) -> bytes | TokenFault:
    """The token of a request's only Authorization field, as it is written there."""
    lines = fields.all(b"authorization")
    if not lines:
        return TokenFault.MISSING
    if len(lines) > 1:
        return TokenFault.MALFORMED
    # RFC 9110, 11.1: the name of a scheme is compared without case.
    match = _BEARER.fullmatch(lines[0])
    if match is None:
        return TokenFault.MALFORMED
    return match[1] if len(match[1]) <= MAX_TOKEN_BYTES else TokenFault.TOO_LARGE


def _always() -> bool:
    return True


def decide(
    token: bytes,
    keys: Mapping[str, SignatureKey],
    terms: TokenTerms,
    now_s: float,
    may_verify: Callable[[], bool] = _always,
) -> VerifiedToken | TokenFault:
    """Verify the token of a request. `keys` by their `kid`; `now_s` is since 1970. `may_verify` is asked
    before a signature is checked, which is what costs."""
    if len(token) > MAX_TOKEN_BYTES:
        return TokenFault.TOO_LARGE
    match = _TOKEN.fullmatch(token)
    if match is None:
        return TokenFault.MALFORMED
    try:
        header = _decode_header(base64.urlsafe_b64decode(match[1] + b"=" * (-len(match[1]) % 4)))
    except (ValueError, RecursionError):  # of base64, of msgspec, or of text that is not UTF-8
        return TokenFault.MALFORMED
    if header.crit is not None:
        return TokenFault.MALFORMED
    if header.alg not in ALGORITHMS:
        return TokenFault.ALGORITHM
    key = None if header.kid is None else keys.get(header.kid)
    if key is None:
        return TokenFault.KEY
    if header.alg not in key.algorithms:
        return TokenFault.ALGORITHM
    if not may_verify():
        return TokenFault.TOO_MANY
    payload = key.payload_of(token, header.alg)
    if payload is None:
        return TokenFault.SIGNATURE
    return _check_claims(payload, terms, now_s)


def _check_claims(payload: bytes, terms: TokenTerms, now_s: float) -> VerifiedToken | TokenFault:
    try:
        claims = _decode_claims(payload)
    except (ValueError, RecursionError):
        return TokenFault.MALFORMED
    if claims.iss != terms.issuer:
        return TokenFault.ISSUER
    audiences = (claims.aud,) if isinstance(claims.aud, str) else claims.aud
    if terms.audience not in audiences:
        return TokenFault.AUDIENCE
    if claims.sub not in terms.subjects:
        return TokenFault.SUBJECT
    if now_s > claims.exp + LEEWAY_S:
        return TokenFault.EXPIRED
    if now_s < max(claims.nbf, claims.iat) - LEEWAY_S:
        return TokenFault.NOT_YET_VALID
    # JSON does not let two pairs of texts look alike.
    digest = hashlib.sha256(msgspec.json.encode((claims.iss, claims.sub))).hexdigest()
    return VerifiedToken(terms.tenant, f"token:{digest}", claims.exp + LEEWAY_S)
