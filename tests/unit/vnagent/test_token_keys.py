# SPDX-License-Identifier: Apache-2.0
"""Signatures by keys of each type, and keys that are none."""

import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.token_issuer import TokenIssuer, segment
from vnagent.core import jwks
from vnagent.core.bearer_token import TokenFault, TokenTerms, VerifiedToken, decide
from vnagent.token_keys import TokenKey, load

NOW = 1_800_000_000.0
TERMS = TokenTerms("ten-a", "issuer", "vn-agent", frozenset({"subject"}))


def issuer_of(algorithm: str) -> TokenIssuer:
    return TokenIssuer(algorithm, "issuer")


def keys_of(*issuers: TokenIssuer) -> dict[str, TokenKey]:
    data = json.dumps({"keys": [each.jwk for each in issuers]}).encode()
    return {each.key_id: TokenKey(each) for each in jwks.parse(data)}


def verdict(token: str, keys: dict[str, TokenKey]) -> TokenFault | str:
    found = decide(token.encode(), keys, TERMS, NOW)
    return found.tenant if isinstance(found, VerifiedToken) else found


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "ES384", "ES512", "EdDSA"])
def test_a_token_is_verified_by_the_key_that_signed_it(algorithm: str) -> None:
    issuer, other = issuer_of(algorithm), issuer_of(algorithm)
    token = issuer.token(NOW, sub="subject")
    assert verdict(token, keys_of(issuer, other)) == "ten-a"
    assert verdict(token, keys_of(other)) == TokenFault.KEY
    # The other key under this one's name.
    other.jwk["kid"] = issuer.jwk["kid"]
    assert verdict(token, keys_of(other)) == TokenFault.SIGNATURE


@pytest.mark.parametrize("algorithm", ["RS384", "RS512", "PS256", "PS384", "PS512"])
def test_an_rsa_key_without_alg_takes_each_of_its_algorithms(algorithm: str) -> None:
    issuer = issuer_of("RS256")
    del issuer.jwk["alg"]
    claims = issuer.claims(NOW, sub="subject")
    token = jwt.encode(claims, issuer.key, algorithm=algorithm, headers={"kid": issuer.jwk["kid"]})
    assert verdict(token, keys_of(issuer)) == "ten-a"


def test_a_changed_token_is_refused() -> None:
    issuer = issuer_of("ES256")
    header, payload, signature = issuer.token(NOW, sub="subject").split(".")
    changed = segment(issuer.claims(NOW, sub="subject", exp=NOW + 10**9))
    assert verdict(f"{header}.{changed}.{signature}", keys_of(issuer)) == TokenFault.SIGNATURE
    other = segment({"alg": "ES256", "kid": issuer.jwk["kid"], "typ": "at+jwt"})
    assert verdict(f"{other}.{payload}.{signature}", keys_of(issuer)) == TokenFault.SIGNATURE


@pytest.mark.parametrize("algorithm", ["none", "None", "nOnE"])
def test_an_unsigned_token_is_refused(algorithm: str) -> None:
    issuer = issuer_of("ES256")
    header = segment({"alg": algorithm, "kid": issuer.jwk["kid"]})
    payload = segment(issuer.claims(NOW, sub="subject"))
    assert verdict(f"{header}.{payload}.", keys_of(issuer)) == TokenFault.MALFORMED
    assert verdict(f"{header}.{payload}.AAAA", keys_of(issuer)) == TokenFault.ALGORITHM


@pytest.mark.parametrize("form", ["pem", "jwk", "modulus"])
def test_hmac_with_the_public_key_is_refused(form: str) -> None:
    """RFC 8725, 2.1: all of these are public."""
    issuer = issuer_of("RS256")
    secrets: dict[str, bytes] = {
        "pem": issuer.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        "jwk": json.dumps(issuer.jwk).encode(),
        "modulus": issuer.jwk["n"].encode(),
    }
    header = segment({"alg": "HS256", "kid": issuer.jwk["kid"]})
    signed = f"{header}.{segment(issuer.claims(NOW, sub='subject'))}"
    digest = hmac.new(secrets[form], signed.encode(), hashlib.sha256).digest()
    signature = jwt.utils.base64url_encode(digest).decode()
    assert verdict(f"{signed}.{signature}", keys_of(issuer)) == TokenFault.ALGORITHM


@pytest.mark.parametrize(
    "changes",
    [{"x": "A" * 43}, {"y": "A" * 43}, {"x": "_" * 43}],
    ids=["x is 0", "y is 0", "beyond the field"],
)
def test_points_off_the_curve_are_refused(changes: dict[str, Any]) -> None:
    jwk = {**issuer_of("ES256").jwk, **changes, "kid": "point"}
    (public,) = jwks.parse(json.dumps({"keys": [jwk]}).encode())
    with pytest.raises(jwks.JwksError, match=r"^key 'point' cannot be used$"):
        TokenKey(public)


def test_a_file_of_keys_is_loaded(tmp_path: Path) -> None:
    first, second = issuer_of("ES256"), issuer_of("EdDSA")
    path = tmp_path / "ten-a.jwks"
    path.write_bytes(first.jwks(second.jwk))
    assert list(load(path)) == [first.jwk["kid"], second.jwk["kid"]]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "does not exist"),
        (b"-----BEGIN PUBLIC KEY-----", "is not a JSON Web Key Set"),
        (b" " * 65537, "larger than 65536 bytes"),
    ],
)
def test_an_unusable_file_is_reported(tmp_path: Path, content: bytes | None, reason: str) -> None:
    path = tmp_path / "ten-a.jwks"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(jwks.JwksError) as raised:
        load(path)
    assert str(raised.value) == reason
