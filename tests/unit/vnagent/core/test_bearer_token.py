# SPDX-License-Identifier: Apache-2.0
"""The decision on a token: its header, key and claims, at a time."""

import base64
import hashlib
from typing import Any

import pytest

from tests.token_issuer import AUDIENCE, ISSUER, SUBJECT, segment
from tests.unit.vnagent.core.head_lines import HOST, LINE, head
from vnagent.core.bearer_token import (
    TokenFault,
    TokenTerms,
    VerifiedToken,
    decide,
    token_of,
)
from vnagent.core.head import parse_request_head
from vnagent.core.jwks import ALGORITHMS

NOW = 1_800_000_000.0
TERMS = TokenTerms("ten-a", ISSUER, AUDIENCE, frozenset({SUBJECT, "system:serviceaccount:monitoring:b"}))
HEADER = {"alg": "ES256", "kid": "key-1"}
CLAIMS: dict[str, Any] = {
    "aud": [AUDIENCE],
    "exp": NOW + 3600,
    "iat": NOW,
    "nbf": NOW,
    "iss": ISSUER,
    "sub": SUBJECT,
}
IDENTITY = "token:" + hashlib.sha256(f'["{ISSUER}","{SUBJECT}"]'.encode()).hexdigest()
VERIFIED = VerifiedToken("ten-a", IDENTITY, NOW + 3660)


class PlainKey:
    """Takes a signature of "good", and records the algorithms that it is asked for."""

    def __init__(self, *algorithms: str) -> None:
        self.algorithms = frozenset(algorithms)
        self.used: list[str] = []

    def payload_of(self, token: bytes, algorithm: str) -> bytes | None:
        self.used.append(algorithm)
        _, payload, signature = token.split(b".")
        return base64.urlsafe_b64decode(payload + b"==") if signature == b"good" else None


def token(header: object = HEADER, claims: object = CLAIMS, signature: str = "good") -> bytes:
    return f"{segment(header)}.{segment(claims)}.{signature}".encode()


def verdict(value: bytes, now_s: float = NOW) -> VerifiedToken | TokenFault:
    return decide(value, {"key-1": PlainKey("ES256")}, TERMS, now_s)


def test_a_token_with_all_terms_is_verified() -> None:
    assert verdict(token()) == VERIFIED


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # KEP-1205: one audience may be a string, and a list may have more.
        ({"aud": AUDIENCE}, VERIFIED),
        ({"aud": ["other", AUDIENCE]}, VERIFIED),
        ({"aud": []}, TokenFault.AUDIENCE),
        ({"aud": "other"}, TokenFault.AUDIENCE),
        ({"aud": AUDIENCE + "x"}, TokenFault.AUDIENCE),
        ({"aud": AUDIENCE[:-1]}, TokenFault.AUDIENCE),
        ({"aud": None}, TokenFault.MALFORMED),
        ({"aud": [1]}, TokenFault.MALFORMED),
        ({"iss": "https://other.example"}, TokenFault.ISSUER),
        ({"iss": ISSUER + "/"}, TokenFault.ISSUER),
        ({"iss": [ISSUER]}, TokenFault.MALFORMED),
        ({"sub": "system:serviceaccount:monitoring:other"}, TokenFault.SUBJECT),
        ({"sub": SUBJECT.upper()}, TokenFault.SUBJECT),
        ({"sub": ""}, TokenFault.SUBJECT),
        # RFC 7519, 4.1.4 and 4.1.5, with a leeway of 60 s.
        ({"exp": NOW - 60}, VERIFIED._replace(not_after_s=NOW)),
        ({"exp": NOW - 60.5}, TokenFault.EXPIRED),
        ({"exp": NOW + 0.5}, VERIFIED._replace(not_after_s=NOW + 60.5)),
        ({"exp": -1}, TokenFault.EXPIRED),
        ({"exp": str(NOW + 60)}, TokenFault.MALFORMED),
        ({"exp": True}, TokenFault.MALFORMED),
        ({"exp": None}, TokenFault.MALFORMED),
        ({"nbf": NOW + 60}, VERIFIED),
        ({"nbf": NOW + 60.5}, TokenFault.NOT_YET_VALID),
        ({"nbf": "0"}, TokenFault.MALFORMED),
        ({"iat": NOW + 60.5}, TokenFault.NOT_YET_VALID),
        ({"iat": NOW + 60}, VERIFIED),
        ({"kubernetes.io": {"namespace": "other"}}, VERIFIED),
    ],
    ids=str,
)
def test_claims_decide(changes: dict[str, Any], expected: VerifiedToken | TokenFault) -> None:
    assert verdict(token(claims={**CLAIMS, **changes})) == expected


@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        ("aud", TokenFault.AUDIENCE),
        ("exp", TokenFault.MALFORMED),
        ("iss", TokenFault.ISSUER),
        ("sub", TokenFault.SUBJECT),
        ("nbf", VERIFIED),
        ("iat", VERIFIED),
    ],
)
def test_missing_claims_decide(missing: str, expected: VerifiedToken | TokenFault) -> None:
    claims = {name: value for name, value in CLAIMS.items() if name != missing}
    assert verdict(token(claims=claims)) == expected


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ({"alg": "none", "kid": "key-1"}, TokenFault.ALGORITHM),
        ({"alg": "None", "kid": "key-1"}, TokenFault.ALGORITHM),
        ({"alg": "", "kid": "key-1"}, TokenFault.ALGORITHM),
        ({"alg": "HS256", "kid": "key-1"}, TokenFault.ALGORITHM),
        ({"alg": "es256", "kid": "key-1"}, TokenFault.ALGORITHM),
        ({"alg": "RS256", "kid": "key-1"}, TokenFault.ALGORITHM),
        ({"alg": "ES256", "kid": "key-2"}, TokenFault.KEY),
        ({"alg": "ES256", "kid": ""}, TokenFault.KEY),
        ({"alg": "ES256"}, TokenFault.KEY),
        ({"alg": "ES256", "kid": ["key-1"]}, TokenFault.MALFORMED),
        ({"alg": ["ES256"], "kid": "key-1"}, TokenFault.MALFORMED),
        ({"kid": "key-1"}, TokenFault.MALFORMED),
        ({**HEADER, "crit": ["exp"]}, TokenFault.MALFORMED),
        ({**HEADER, "crit": []}, TokenFault.MALFORMED),
        ({**HEADER, "jwk": {"kty": "EC"}, "jku": "https://evil.example", "typ": "JWT"}, VERIFIED),
        ([], TokenFault.MALFORMED),
    ],
    ids=str,
)
def test_headers_decide(header: object, expected: VerifiedToken | TokenFault) -> None:
    assert verdict(token(header=header)) == expected


def test_a_wrong_signature_is_refused_before_the_claims() -> None:
    assert verdict(token(claims={}, signature="bad")) is TokenFault.SIGNATURE


def test_a_key_is_used_with_its_algorithms_alone() -> None:
    for algorithm in sorted(ALGORITHMS | {"HS256", "none"}):
        key = PlainKey("PS256", "RS256")
        decide(token(header={"alg": algorithm, "kid": "key-1"}), {"key-1": key}, TERMS, NOW)
        assert key.used == [algorithm] * (algorithm in key.algorithms)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"", TokenFault.MALFORMED),
        (b"a.b", TokenFault.MALFORMED),
        (b"a.b.c.d", TokenFault.MALFORMED),
        (b"a.b.c", TokenFault.MALFORMED),
        (b"..", TokenFault.MALFORMED),
        (token() + b"=", TokenFault.MALFORMED),
        (token() + b"\n", TokenFault.MALFORMED),
        (token(signature=""), TokenFault.MALFORMED),
        (token(claims=[]), TokenFault.MALFORMED),
        (token(claims={**CLAIMS, "exp": int("9" * 400)}), TokenFault.MALFORMED),
        (segment(HEADER).encode() + b"._w.good", TokenFault.MALFORMED),
        (b"W" * 3000 + b".a.good", TokenFault.MALFORMED),
        (b"a" * 8193, TokenFault.TOO_LARGE),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_malformed_tokens_are_refused(value: bytes, expected: TokenFault) -> None:
    assert verdict(value) == expected


@pytest.mark.parametrize("text", [b"\xff", b"\xed\xa0\x80", b"\\ud800"])
def test_text_that_is_not_utf_8_is_refused(text: bytes) -> None:
    def encoded(json: bytes) -> bytes:
        return base64.urlsafe_b64encode(json).rstrip(b"=")

    header = encoded(b'{"alg":"ES256","kid":"' + text + b'"}')
    assert verdict(header + b".a.good") is TokenFault.MALFORMED
    claims = encoded(b'{"exp":1,"iss":"' + text + b'"}')
    assert verdict(segment(HEADER).encode() + b"." + claims + b".good") is TokenFault.MALFORMED


def test_deep_json_is_refused() -> None:
    deep = base64.urlsafe_b64encode(b"[" * 4000).rstrip(b"=")
    assert verdict(deep + b".a.good") is TokenFault.MALFORMED
    assert verdict(segment(HEADER).encode() + b"." + deep + b".good") is TokenFault.MALFORMED


def test_identities_of_different_callers_differ() -> None:
    """Also of texts that are equal when they are joined."""
    found = set()
    for issuer, subject in (("a", "bc"), ("ab", "c"), ('a","b', "c"), ("a", 'b","c')):
        claims = {**CLAIMS, "iss": issuer, "sub": subject}
        terms = TERMS._replace(issuer=issuer, subjects=frozenset({subject}))
        verified = decide(token(claims=claims), {"key-1": PlainKey("ES256")}, terms, NOW)
        assert isinstance(verified, VerifiedToken)
        found.add(verified.identity)
    assert len(found) == 4


def test_a_verified_token_expires_with_the_leeway() -> None:
    assert not VERIFIED.is_expired(NOW + 3660)
    assert VERIFIED.is_expired(NOW + 3660.5)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ((), TokenFault.MISSING),
        (("Authorization: Bearer a.b.c",), b"a.b.c"),
        (("authorization: bearer  a.b.c ",), b"a.b.c"),
        (("Proxy-Authorization: Bearer a.b.c",), TokenFault.MISSING),
        (("Authorization: Bearer a.b.c", "Authorization: Bearer a.b.c"), TokenFault.MALFORMED),
        (("Authorization:",), TokenFault.MALFORMED),
        (("Authorization: a.b.c",), TokenFault.MALFORMED),
        (("Authorization: Bearer",), TokenFault.MALFORMED),
        (("Authorization: Bearer a b",), TokenFault.MALFORMED),
        (("Authorization: Bearer a.b.c, Bearer a.b.c",), TokenFault.MALFORMED),
        (("Authorization: Basic YTpi",), TokenFault.MALFORMED),
        (("Authorization: Bearer " + "a" * 8192,), b"a" * 8192),
        (("Authorization: Bearer " + "a" * 8193,), TokenFault.TOO_LARGE),
    ],
    ids=lambda value: repr(value)[:50],
)
def test_one_field_has_the_token(lines: tuple[str, ...], expected: bytes | TokenFault) -> None:
    parsed = parse_request_head(head(LINE, HOST, *(line.encode() for line in lines)))
    assert token_of(parsed.fields) == expected
