# SPDX-License-Identifier: Apache-2.0
"""Which sets of keys are served, and which key signs."""

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes

from tests.signing_keys import AccountKey
from vc_signer.core.key_set import MAX_KEYS, KeySet, KeySetError, key_set, kid_of, next_signing

A, B, C = (AccountKey.create() for _ in "abc")


def der(key: PublicKeyTypes) -> bytes:
    return key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


P384, P521, K1 = (
    der(ec.generate_private_key(curve).public_key())
    for curve in (ec.SECP384R1(), ec.SECP521R1(), ec.SECP256K1())
)
RSA = der(rsa.generate_private_key(65_537, 2048).public_key())
ED25519 = der(ed25519.Ed25519PrivateKey.generate().public_key())
# The same point, compressed: Go does not read it.
COMPRESSED = bytes.fromhex("3039301306072a8648ce3d020106082a8648ce3d030107032200") + b"\x02" + A.der[-64:-32]


def named(*ders: bytes) -> dict[str, bytes]:
    return {f"{kid_of(each)}.pub": each for each in ders}


def test_a_keys_id_is_that_of_the_api_server() -> None:
    assert kid_of(A.der) == A.kid


def test_the_signing_key_is_always_served() -> None:
    alone = key_set(A.der, {})
    assert (alone.signing, alone.public) == (A.kid, {A.kid: A.der})
    assert key_set(A.der, named(A.der)) == alone
    both = key_set(A.der, named(B.der))
    assert both == KeySet(A.kid, {B.kid: B.der, A.kid: A.der})
    assert list(both.public) == sorted((A.kid, B.kid)), "in one order, or the API server sees a change"
    assert both != alone


@pytest.mark.parametrize("other", [P384, P521, RSA], ids=["P-384", "P-521", "RSA"])
def test_keys_of_other_kinds_verify(other: bytes) -> None:
    assert key_set(A.der, named(other)).public == {A.kid: A.der, kid_of(other): other}


@pytest.mark.parametrize(
    "other", [K1, ED25519, COMPRESSED, A.der + b"\0"], ids=["secp256k1", "Ed25519", "compressed", "longer"]
)
def test_keys_that_the_api_server_cannot_read_are_refused(other: bytes) -> None:
    """It would refuse all keys for one of these."""
    with pytest.raises(KeySetError, match="neither RSA nor a named curve"):
        key_set(A.der, named(other))


@pytest.mark.parametrize(
    "signing", [P384, RSA, K1, COMPRESSED], ids=["P-384", "RSA", "secp256k1", "compressed"]
)
def test_only_p256_signs(signing: bytes) -> None:
    with pytest.raises(KeySetError, match=r"^signing\.pem: the key is not on P-256"):
        key_set(signing, {})


def test_a_file_is_named_for_its_key() -> None:
    with pytest.raises(KeySetError) as caught:
        key_set(A.der, {"old.pub": B.der})
    assert str(caught.value) == f"old.pub: the key's id is {B.kid}: name the file {B.kid}.pub"


def test_keys_are_limited() -> None:
    many = [AccountKey.create().der for _ in range(MAX_KEYS)]
    assert len(key_set(many[0], named(*many)).public) == MAX_KEYS
    with pytest.raises(KeySetError, match="65 keys: keep 64"):
        key_set(A.der, named(*many))


NONE: frozenset[str] = frozenset()


@pytest.mark.parametrize(
    ("current", "wanted", "published", "signs"),
    [
        pytest.param("", A, NONE, A, id="a start has no other key"),
        pytest.param(A.kid, A, NONE, A, id="nothing changes"),
        pytest.param(A.kid, B, {A.kid}, A, id="the API server does not have the new key"),
        pytest.param(A.kid, B, NONE, A, id="nor any"),
        pytest.param(A.kid, B, {A.kid, B.kid}, B, id="it has"),
        pytest.param(A.kid, B, {B.kid}, B, id="and the old one is gone"),
        pytest.param(B.kid, A, {A.kid, B.kid}, A, id="back"),
        pytest.param(A.kid, C, {A.kid, B.kid}, A, id="the next one came before the last was used"),
    ],
)
def test_a_key_signs_once_it_is_published(
    current: str, wanted: AccountKey, published: frozenset[str], signs: AccountKey
) -> None:
    found = next_signing(current, key_set(wanted.der, named(A.der, B.der)), frozenset(published))
    assert found == signs.kid
