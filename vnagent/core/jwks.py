# SPDX-License-Identifier: Apache-2.0
"""Reads a JSON Web Key Set (RFC 7517): the public keys of one issuer of tokens.

Each key allows the algorithms of its own type alone (RFC 8725, 3.1). So no token can choose an algorithm for
a key, such as HMAC with a public key as the secret. Keys of an unknown type or for another use are left out
(RFC 7517, 5). A set with a secret in it is refused, as the file is no secret.
"""

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

# What an apiserver prints has 0.5 KB for each key, and a key for each of `--service-account-key-file`.
MAX_BYTES = 64 * 1024
MAX_KEYS = 16
# Shorter ones are unsafe (RFC 7518, 3.3); a check by a longer one takes more than 0.3 ms.
MIN_RSA_BITS, MAX_RSA_BITS = 2048, 8192
# The exponent is 65 537 in practice, and the time of a check grows with its length.
MAX_RSA_EXPONENT_BITS = 32
MAX_KEY_ID_CHARS = 256

_RSA = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
# RFC 7518, 3.4; RFC 8037, 3.1. For each curve: the algorithms, and the bytes of a coordinate.
_CURVES = {
    ("EC", "P-256"): (frozenset({"ES256"}), 32),
    ("EC", "P-384"): (frozenset({"ES384"}), 48),
    ("EC", "P-521"): (frozenset({"ES512"}), 66),
    ("OKP", "Ed25519"): (frozenset({"EdDSA"}), 32),
}
ALGORITHMS = _RSA.union(*(algorithms for algorithms, _ in _CURVES.values()))
_BASE64URL = re.compile(r"[A-Za-z0-9_-]++")


class JwksError(ValueError):
    """A set of keys that cannot be used. The text has no part of a key."""


class MissingLibraryError(JwksError):
    """The library that verifies signatures is not installed: no set can be used."""


class PublicKey(NamedTuple):
    """`members` are those of RFC 7518, 6 and RFC 8037, 2 that make the key."""

    key_id: str
    algorithms: frozenset[str]
    members: Mapping[str, str]


class _Jwk(msgspec.Struct):
    kty: str
    kid: str | None = None
    use: str | None = None
    key_ops: tuple[str, ...] | None = None
    alg: str | None = None
    n: str = ""
    e: str = ""
    crv: str = ""
    x: str = ""
    y: str = ""
    d: Any = None
    k: Any = None


class _KeySet(msgspec.Struct):
    keys: tuple[_Jwk, ...]


_decode = msgspec.json.Decoder(_KeySet).decode


def parse(data: bytes) -> tuple[PublicKey, ...]:
    """The keys of the set that verify signatures: one at least. Raises JwksError."""
    if len(data) > MAX_BYTES:
        raise JwksError(f"has more than {MAX_BYTES} bytes")
    try:
        keys = _decode(data).keys
    except (ValueError, RecursionError):  # also of text that is not UTF-8
        raise JwksError("is not a JSON Web Key Set") from None
    if len(keys) > MAX_KEYS:
        raise JwksError(f"has more than {MAX_KEYS} keys")
    found: dict[str, PublicKey] = {}
    for number, key in enumerate(keys, 1):
        try:
            usable = _public_key(key)
        except JwksError as error:
            raise JwksError(f"key {number} {error}") from None
        if usable is None:
            continue
        if usable.key_id in found:
            raise JwksError(f"key {number} has the kid of another key")
        found[usable.key_id] = usable
    if not found:
        raise JwksError("has no key that verifies signatures")
    return tuple(found.values())


def _public_key(key: _Jwk) -> PublicKey | None:
    if key.d is not None or key.k is not None:
        raise JwksError("has a secret: list public keys alone")
    if key.use not in (None, "sig") or "verify" not in (key.key_ops or ("verify",)):
        return None
    if key.kty == "RSA":
        algorithms, members = _RSA, {"n": key.n, "e": key.e}
        _check_rsa(key)
    elif (key.kty, key.crv) in _CURVES:
        algorithms, size = _CURVES[key.kty, key.crv]
        members = {"crv": key.crv, "x": key.x}
        if key.kty == "EC":
            members["y"] = key.y
        if any(len(_bytes(each)) != size for name, each in members.items() if name != "crv"):
            raise JwksError("has a malformed point")
    else:
        return None
    if key.alg is not None:
        algorithms &= {key.alg}
    if not algorithms:
        return None
    if not key.kid or len(key.kid) > MAX_KEY_ID_CHARS:
        raise JwksError("has no kid, or a long one")
    return PublicKey(key.kid, algorithms, {"kty": key.kty, **members})


def _check_rsa(key: _Jwk) -> None:
    modulus, exponent = (int.from_bytes(_bytes(each)) for each in (key.n, key.e))
    if not MIN_RSA_BITS <= modulus.bit_length() <= MAX_RSA_BITS:
        raise JwksError(f"of RSA has fewer than {MIN_RSA_BITS} or more than {MAX_RSA_BITS} bits")
    if exponent < 3 or not exponent & 1 or exponent.bit_length() > MAX_RSA_EXPONENT_BITS:
        raise JwksError("of RSA has an unusable exponent")


def _bytes(text: str) -> bytes:
    if _BASE64URL.fullmatch(text) is None:
        raise JwksError("is malformed")
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except binascii.Error:
        raise JwksError("is malformed") from None
