# SPDX-License-Identifier: Apache-2.0
"""SCRAM-SHA-256 (RFC 5802, RFC 7677) as PostgreSQL has it: what a client proves, and what a server keeps.

Nonces and salts come from the caller.
"""

import base64
import binascii
import hashlib
import hmac

import msgspec

MECHANISM = "SCRAM-SHA-256"
_ITERATIONS = 4096
# A server that asks for more would have the client compute for seconds.
_MAX_ITERATIONS = 1_000_000
# No channel binding: the certificate of the server is verified.
_HEADER = "n,,"


class ScramError(ValueError):
    """What the other side says is no SCRAM, or it does not know the password."""


class ScramProof(msgspec.Struct, frozen=True):
    """`message` is the client's last one, `signature` what a server answers that knows the password."""

    message: bytes
    signature: bytes


def verifier(password: str, salt: bytes) -> str:
    """What PostgreSQL keeps of a password. It takes it in the place of one."""
    salted = _salted(password, salt, _ITERATIONS)
    stored, server = hashlib.sha256(_signed(salted, b"Client Key")).digest(), _signed(salted, b"Server Key")
    return f"{MECHANISM}${_ITERATIONS}:{_text(salt)}${_text(stored)}:{_text(server)}"


def first_message(nonce: str) -> bytes:
    """The client's first message. PostgreSQL knows the user from the connection."""
    return f"{_HEADER}n=,r={nonce}".encode()


def prove(password: str, nonce: str, challenge: bytes) -> ScramProof:
    """The answer to a server's challenge. Raises ScramError."""
    try:
        text = challenge.decode("ascii")
        fields = dict(each.split("=", 1) for each in text.split(","))
        both, salt, rounds = fields["r"], base64.b64decode(fields["s"], validate=True), int(fields["i"])
    except (ValueError, KeyError, binascii.Error):
        raise ScramError("the server's challenge is none") from None
    if not both.startswith(nonce) or both == nonce or not 0 < rounds <= _MAX_ITERATIONS:
        raise ScramError("the server's challenge is of another client, or asks for too much")
    salted = _salted(password, salt, rounds)
    key = _signed(salted, b"Client Key")
    last = f"c={_text(_HEADER.encode())},r={both}"
    whole = f"n=,r={nonce},{text},{last}".encode()
    mask = _signed(hashlib.sha256(key).digest(), whole)
    proof = bytes(one ^ other for one, other in zip(key, mask, strict=True))
    return ScramProof(f"{last},p={_text(proof)}".encode(), _signed(_signed(salted, b"Server Key"), whole))


def check_server(proof: ScramProof, answer: bytes) -> None:
    """Whether the server knows the password too. Raises ScramError."""
    if not hmac.compare_digest(answer, b"v=" + _text(proof.signature).encode()):
        raise ScramError("the server does not know the password")


def _salted(password: str, salt: bytes, rounds: int) -> bytes:
    return hashlib.pbkdf2_hmac("sha256", password.encode(), salt, rounds)


def _signed(key: bytes, text: bytes) -> bytes:
    return hmac.digest(key, text, "sha256")


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()
