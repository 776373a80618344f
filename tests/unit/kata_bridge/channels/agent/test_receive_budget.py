# SPDX-License-Identifier: Apache-2.0
import hashlib

import pytest

from kata_bridge.channels.agent.receive_budget import (
    BEFORE_ATTACHED_BYTES,
    BETWEEN_MESSAGES_BYTES,
    FLIGHT_BYTES,
    ReceiveBudget,
)

ANSWER = b"\x16\x03\x03\x00\x7a\x02\x00\x00\x76\x03\x03" + bytes(32)
RETRY = ANSWER[:11] + hashlib.sha256(b"HelloRetryRequest").digest()  # RFC 8446, 4.1.3


def shaken() -> ReceiveBudget:
    """Of a connection whose handshake is done."""
    allowance = ReceiveBudget()
    for _ in range(2):
        assert allowance.spend(1)
        allowance.answered(ANSWER)
    return allowance


def test_a_connection_has_little_until_it_is_attached() -> None:
    allowance = shaken()
    assert allowance.spend(BEFORE_ATTACHED_BYTES - 2)
    assert not allowance.spend(1)


@pytest.mark.parametrize("before", [[], [ANSWER], [RETRY, ANSWER]])
def test_each_flight_of_its_handshake_is_bounded(before: list[bytes]) -> None:
    """The server reads a chain before it identifies the guest: 43 KB took 2.7 s and 490 MiB."""
    allowance = ReceiveBudget()
    for answer in before:
        assert allowance.spend(FLIGHT_BYTES)
        allowance.answered(answer)
        allowance.answered(answer)  # in two pieces
    assert allowance.spend(FLIGHT_BYTES)
    assert not allowance.spend(1)


def test_each_message_makes_it_anew_and_nothing_adds_up() -> None:
    allowance = shaken()
    for _ in range(3):
        allowance.renew()
        assert allowance.spend(BETWEEN_MESSAGES_BYTES - 1)
    allowance.renew()
    allowance.renew()
    assert not allowance.spend(BETWEEN_MESSAGES_BYTES + 1)


def test_what_was_asked_for_may_come() -> None:
    allowance = shaken()
    allowance.renew()
    allowance.expect(8 << 20)
    assert allowance.spend(8 << 20)
    allowance.renew()
    assert not allowance.spend(8 << 20)


def test_a_message_in_between_takes_nothing_from_what_was_asked_for() -> None:
    """An agent reports a drift when it sees one, also just before it answers what its rules are."""
    allowance = shaken()
    allowance.renew()
    allowance.expect(8 << 20)
    assert allowance.spend(100)
    allowance.renew()
    assert allowance.spend(8 << 20)
    assert allowance.spend(BETWEEN_MESSAGES_BYTES)
    assert not allowance.spend(1)


def test_what_nobody_waits_for_any_more_may_not_come() -> None:
    allowance = shaken()
    allowance.renew()
    allowance.expect(8 << 20)
    allowance.expect(0)
    assert allowance.spend(BETWEEN_MESSAGES_BYTES)
    assert not allowance.spend(1)
