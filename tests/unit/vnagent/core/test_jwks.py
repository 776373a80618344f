# SPDX-License-Identifier: Apache-2.0
import base64
import json
from typing import Any

import pytest

from vnagent.core import jwks


def rsa_modulus(bits: int) -> str:
    """All ones, so long."""
    number = ((1 << bits) - 1).to_bytes((bits + 7) // 8)
    return base64.urlsafe_b64encode(number).decode().rstrip("=")


RSA = {"kty": "RSA", "n": rsa_modulus(2048), "e": "AQAB", "kid": "rsa"}
# RFC 7517, appendix A.1; RFC 8037, appendix A.2.
EC = {
    "kty": "EC",
    "crv": "P-256",
    "x": "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4",
    "y": "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM",
    "kid": "ec",
}
OKP = {"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo", "kid": "okp"}
RSA_ALGORITHMS = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})


def key_set(*keys: dict[str, Any]) -> bytes:
    return json.dumps({"keys": keys}).encode()


def algorithms(*keys: dict[str, Any]) -> dict[str, frozenset[str]]:
    return {each.key_id: each.algorithms for each in jwks.parse(key_set(*keys))}


def test_a_key_allows_the_algorithms_of_its_type() -> None:
    assert algorithms(RSA, EC, OKP) == {
        "rsa": RSA_ALGORITHMS,
        "ec": frozenset({"ES256"}),
        "okp": frozenset({"EdDSA"}),
    }


def test_a_key_with_an_algorithm_allows_that_one() -> None:
    assert algorithms({**RSA, "alg": "RS256", "use": "sig"}) == {"rsa": frozenset({"RS256"})}


def test_members_of_the_key_alone_are_kept() -> None:
    (found,) = jwks.parse(key_set({**EC, "x5u": "https://evil.example", "key_ops": ["verify"]}))
    assert dict(found.members) == {name: EC[name] for name in ("kty", "crv", "x", "y")}


@pytest.mark.parametrize(
    "other",
    [
        {"kty": "AKP", "alg": "ML-DSA-44", "pub": "AAAA", "kid": "new"},
        {**EC, "kid": "other", "crv": "secp256k1"},
        {**OKP, "kid": "other", "crv": "X25519"},
        {**RSA, "kid": "other", "use": "enc"},
        {**RSA, "kid": "other", "key_ops": ["encrypt"]},
        {**RSA, "kid": "other", "alg": "HS256"},
        {**EC, "kid": "other", "alg": "RS256"},
        {**RSA, "kid": "other", "alg": "none"},
    ],
    ids=str,
)
def test_keys_of_no_use_are_left_out(other: dict[str, Any]) -> None:
    assert list(algorithms(EC, other)) == ["ec"]
    with pytest.raises(jwks.JwksError, match=r"^has no key that verifies signatures$"):
        jwks.parse(key_set(other))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "is not a JSON Web Key Set"),
        (b"{}", "is not a JSON Web Key Set"),
        (b"[]", "is not a JSON Web Key Set"),
        (b'{"keys": [1]}', "is not a JSON Web Key Set"),
        (b'{"keys": [{"kty": "\xff"}]}', "is not a JSON Web Key Set"),
        (b'{"keys": ' + b"[" * 20_000, "is not a JSON Web Key Set"),
        (key_set(), "has no key that verifies signatures"),
        (b" " * (64 * 1024 + 1), "has more than 65536 bytes"),
        (key_set(*({**EC, "kid": str(number)} for number in range(17))), "has more than 16 keys"),
        (key_set(EC, {**RSA, "kid": "ec"}), "key 2 has the kid of another key"),
        (key_set({**EC, "kid": ""}), "key 1 has no kid, or a long one"),
        (key_set({**EC, "kid": "k" * 257}), "key 1 has no kid, or a long one"),
        (key_set({name: EC[name] for name in ("kty", "crv", "x", "y")}), "key 1 has no kid, or a long one"),
        (key_set({**EC, "d": "AAAA"}), "key 1 has a secret: list public keys alone"),
        (
            key_set({"kty": "oct", "k": "AAAA", "kid": "a"}),
            "key 1 has a secret: list public keys alone",
        ),
        (key_set({**EC, "x": "AAAA"}), "key 1 has a malformed point"),
        (key_set({**EC, "x": EC["x"] + "!"}), "key 1 is malformed"),
        (key_set({**EC, "x": ""}), "key 1 is malformed"),
        (key_set({**RSA, "n": "A"}), "key 1 is malformed"),
        (
            key_set({**RSA, "n": rsa_modulus(2047)}),
            "key 1 of RSA has fewer than 2048 or more than 8192 bits",
        ),
        (
            key_set({**RSA, "n": rsa_modulus(8193)}),
            "key 1 of RSA has fewer than 2048 or more than 8192 bits",
        ),
        (key_set({**RSA, "e": "AQ"}), "key 1 of RSA has an unusable exponent"),
        (key_set({**RSA, "e": "AQAA"}), "key 1 of RSA has an unusable exponent"),
        (key_set({**RSA, "e": rsa_modulus(33)}), "key 1 of RSA has an unusable exponent"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_unusable_sets_are_refused(data: bytes, reason: str) -> None:
    with pytest.raises(jwks.JwksError) as raised:
        jwks.parse(data)
    assert str(raised.value) == reason


@pytest.mark.parametrize("bits", [2048, 8192])
def test_rsa_keys_at_the_bounds_are_taken(bits: int) -> None:
    assert algorithms({**RSA, "n": rsa_modulus(bits)}) == {"rsa": RSA_ALGORITHMS}
