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


def after_handshake() -> ReceiveBudget:
    """The budget of a connection after its handshake."""
    budget = ReceiveBudget()
    for _ in range(2):
        assert budget.try_spend(1)
        budget.server_sent(ANSWER)
    return budget


def test_budget_is_small_until_attached() -> None:
    budget = after_handshake()
    assert budget.try_spend(BEFORE_ATTACHED_BYTES - 2)
    assert not budget.try_spend(1)


@pytest.mark.parametrize("before", [[], [ANSWER], [RETRY, ANSWER]])
def test_each_flight_of_the_handshake_is_bounded(before: list[bytes]) -> None:
    """The server reads a chain before it identifies the guest: 43 KB took 2.7 s and 490 MiB."""
    budget = ReceiveBudget()
    for size_bytes in before:
        assert budget.try_spend(FLIGHT_BYTES)
        budget.server_sent(size_bytes)
        budget.server_sent(size_bytes)  # in two pieces
    assert budget.try_spend(FLIGHT_BYTES)
    assert not budget.try_spend(1)


def test_each_message_renews_the_budget_without_adding_up() -> None:
    budget = after_handshake()
    for _ in range(3):
        budget.renew()
        assert budget.try_spend(BETWEEN_MESSAGES_BYTES - 1)
    budget.renew()
    budget.renew()
    assert not budget.try_spend(BETWEEN_MESSAGES_BYTES + 1)


def test_expected_result_fits_besides_the_budget() -> None:
    budget = after_handshake()
    budget.renew()
    budget.expect(8 << 20)
    assert budget.try_spend(8 << 20)
    budget.renew()
    assert not budget.try_spend(8 << 20)


def test_other_message_leaves_the_expected_bytes() -> None:
    """An agent reports drift when it finds it, also just before it replies with its state."""
    budget = after_handshake()
    budget.renew()
    budget.expect(8 << 20)
    assert budget.try_spend(100)
    budget.renew()
    assert budget.try_spend(8 << 20)
    assert budget.try_spend(BETWEEN_MESSAGES_BYTES)
    assert not budget.try_spend(1)


def test_expected_bytes_end_with_the_expectation() -> None:
    budget = after_handshake()
    budget.renew()
    budget.expect(8 << 20)
    budget.expect(0)
    assert budget.try_spend(BETWEEN_MESSAGES_BYTES)
    assert not budget.try_spend(1)
