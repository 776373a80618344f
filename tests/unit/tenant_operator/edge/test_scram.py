# SPDX-License-Identifier: Apache-2.0
"""SCRAM-SHA-256, by the example of RFC 7677, section 3."""

import base64

import pytest

from tenant_operator.edge import scram
from tenant_operator.edge.scram import ScramError

NONCE = "rOprNGfwEbeRWgbNEkqO"
PASSWORD = "pencil"
BOTH = f"{NONCE}%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = "W22ZaJ0SNY7soEsUEjb6gQ=="
CHALLENGE = f"r={BOTH},s={SALT},i=4096".encode()


def test_a_verifier_has_what_a_server_needs() -> None:
    """Written by PostgreSQL 15 for this password, with the salt that it drew."""
    salt = base64.b64decode(SALT)
    kind, rounds, keys = scram.verifier(PASSWORD, salt).split("$")
    assert (kind, rounds) == ("SCRAM-SHA-256", f"4096:{SALT}")
    stored, server = keys.split(":")
    # StoredKey and ServerKey of the RFC's example, as other implementations have them.
    assert stored == "WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY="
    assert server == "wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="


def test_the_proof_follows_from_the_challenge() -> None:
    """As the RFC has it but for the name of the user, which PostgreSQL leaves out."""
    proof = scram.prove(PASSWORD, NONCE, CHALLENGE)
    assert proof.message.startswith(f"c=biws,r={BOTH},p=".encode())
    assert scram.first_message(NONCE) == f"n,,n=,r={NONCE}".encode()
    scram.check_server(proof, b"v=" + base64.b64encode(proof.signature))


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"\xff",
        b"r",
        f"r={BOTH},s={SALT}".encode(),
        f"r={BOTH},s=?,i=4096".encode(),
        f"r={BOTH},s={SALT},i=many".encode(),
        f"r={BOTH},s={SALT},i=0".encode(),
        f"r={BOTH},s={SALT},i=100000000".encode(),
        f"r={NONCE},s={SALT},i=4096".encode(),
        f"r=another,s={SALT},i=4096".encode(),
    ],
)
def test_what_is_no_challenge_is_refused(challenge: bytes) -> None:
    with pytest.raises(ScramError):
        scram.prove(PASSWORD, NONCE, challenge)


def test_a_server_without_the_password_is_refused() -> None:
    proof = scram.prove(PASSWORD, NONCE, CHALLENGE)
    for answer in (b"", b"e=other-error", b"v=" + base64.b64encode(b"x" * 32)):
        with pytest.raises(ScramError):
            scram.check_server(proof, answer)
