# SPDX-License-Identifier: Apache-2.0
"""Which keys are served, which one signs, and why a set of keys is refused.

A set is taken whole or not at all: one half of it would refuse tokens that the other half's replicas signed.
"""

import hashlib
from collections.abc import Mapping

from vc_signer.core.token import encode_segment

SIGNING_FILE, PUBLIC_SUFFIX = "signing.pem", ".pub"
MAX_KEYS = 64
"""The answer to `FetchKeys` stays below the client's first window."""

# SubjectPublicKeyInfo of what Go's `ParsePKIXPublicKey` and kube-apiserver take, up to the key itself:
# named curves (RFC 5480) with an uncompressed point, and RSA (RFC 3279). Compressed points and curves by
# their parameters would make the API server refuse all keys.
_P256 = bytes.fromhex("3059301306072a8648ce3d020106082a8648ce3d03010703420004")
_P384 = bytes.fromhex("3076301006072a8648ce3d020106052b8104002203620004")
_P521 = bytes.fromhex("30819b301006072a8648ce3d020106052b810400230381860004")
_SIZES = {_P256: 91, _P384: 120, _P521: 158}
_RSA = bytes.fromhex("300d06092a864886f70d0101010500")


class KeySetError(Exception):
    """A set of keys that is refused; the text names the file and what to do."""


class KeySet:
    """Keys that verify, by their ids, and which of them signs."""

    __slots__ = ("public", "signing")

    def __init__(self, signing: str, public: Mapping[str, bytes]) -> None:
        self.signing = signing
        self.public = dict(sorted(public.items()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeySet) and (self.signing, self.public) == (other.signing, other.public)

    __hash__ = None  # type: ignore[assignment]


def kid_of(der: bytes) -> str:
    """A key's id, as kube-apiserver makes it: the SHA-256 of its SubjectPublicKeyInfo."""
    return encode_segment(hashlib.sha256(der).digest()).decode()


def key_set(signing: bytes, named: Mapping[str, bytes]) -> KeySet:
    """The set of a private key, by its public half, and of `<kid>.pub` files. Raises `KeySetError`.

    The signing key's own public half is always served.
    """
    if not _is_p256(signing):
        raise KeySetError(f"{SIGNING_FILE}: the key is not on P-256: make one with prime256v1")
    public = {kid_of(signing): signing}
    for name, der in named.items():
        kid = kid_of(der)
        if name != kid + PUBLIC_SUFFIX:
            raise KeySetError(f"{name}: the key's id is {kid}: name the file {kid}{PUBLIC_SUFFIX}")
        if not _is_readable(der):
            raise KeySetError(f"{name}: neither RSA nor a named curve P-256, P-384 or P-521: convert the key")
        public[kid] = der
    if len(public) > MAX_KEYS:
        raise KeySetError(f"{len(public)} keys: keep {MAX_KEYS} at most")
    return KeySet(kid_of(signing), public)


def _is_p256(der: bytes) -> bool:
    return der.startswith(_P256) and len(der) == _SIZES[_P256]


def _is_readable(der: bytes) -> bool:
    return _RSA in der[:32] or any(
        der.startswith(prefix) and len(der) == length for prefix, length in _SIZES.items()
    )


def next_signing(current: str, wanted: KeySet, published: frozenset[str]) -> str:
    """The key that signs from now on; `current` is empty at a start.

    A key signs once its public half was published, so that the API server verifies what it hands out. At a
    start it signs at once: there is no other, and the API server asks for keys that it does not know before
    it hands a token out (docs/spec/external-jwt-signer.md#sign).
    """
    return wanted.signing if not current or wanted.signing in published else current
