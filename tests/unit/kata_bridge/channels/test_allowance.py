# SPDX-License-Identifier: Apache-2.0
from kata_bridge.channels.allowance import BEFORE_ATTACHED_BYTES, BETWEEN_MESSAGES_BYTES, Allowance


def test_a_connection_has_little_until_it_is_attached() -> None:
    allowance = Allowance()
    assert allowance.spend(BEFORE_ATTACHED_BYTES)
    assert not allowance.spend(1)


def test_each_message_makes_it_anew_and_nothing_adds_up() -> None:
    allowance = Allowance()
    for _ in range(3):
        allowance.renew()
        assert allowance.spend(BETWEEN_MESSAGES_BYTES - 1)
    allowance.renew()
    allowance.renew()
    assert not allowance.spend(BETWEEN_MESSAGES_BYTES + 1)


def test_what_was_asked_for_may_come() -> None:
    allowance = Allowance()
    allowance.renew()
    allowance.expect(8 << 20)
    assert allowance.spend(8 << 20)
    allowance.renew()
    assert not allowance.spend(8 << 20)


def test_a_message_in_between_takes_nothing_from_what_was_asked_for() -> None:
    """An agent reports a drift when it sees one, also just before it answers what its rules are."""
    allowance = Allowance()
    allowance.renew()
    allowance.expect(8 << 20)
    assert allowance.spend(100)
    allowance.renew()
    assert allowance.spend(8 << 20)
    assert allowance.spend(BETWEEN_MESSAGES_BYTES)
    assert not allowance.spend(1)


def test_what_nobody_waits_for_any_more_may_not_come() -> None:
    allowance = Allowance()
    allowance.renew()
    allowance.expect(8 << 20)
    allowance.expect(0)
    assert allowance.spend(BETWEEN_MESSAGES_BYTES)
    assert not allowance.spend(1)
