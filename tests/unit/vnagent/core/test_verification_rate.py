# SPDX-License-Identifier: Apache-2.0
from vnagent.core.verification_rate import (
    ADDRESS_BURST,
    ADDRESS_PER_S,
    MAX_ADDRESSES,
    PORT_BURST,
    PORT_PER_S,
    VerificationRate,
)

HOURS = 3600


def taken(rate: VerificationRate, addresses: list[str], now_s: float) -> int:
    """How many of these verifications are allowed."""
    return sum(rate.try_acquire(address, now_s) for address in addresses)


def test_an_address_has_a_burst_and_a_rate() -> None:
    rate = VerificationRate(0.0)
    assert taken(rate, ["192.0.2.1"] * 1000, 0.0) == ADDRESS_BURST
    assert taken(rate, ["192.0.2.1"] * 1000, 10.0) == 10 * ADDRESS_PER_S
    assert taken(rate, ["192.0.2.1"] * 1000, HOURS) == ADDRESS_BURST


def test_all_addresses_together_have_a_rate() -> None:
    rate = VerificationRate(0.0)
    addresses = [f"192.0.2.{number}" for number in range(200)]
    assert taken(rate, addresses * 10, 0.0) == PORT_BURST
    assert taken(rate, addresses * 10, 1.0) == PORT_PER_S


def test_a_flood_does_not_delay_a_proven_address() -> None:
    """More addresses than are remembered, each with a burst."""
    rate = VerificationRate(0.0)
    assert rate.try_acquire("192.0.2.1", 0.0)
    rate.prove("192.0.2.1")
    for number in range(4 * MAX_ADDRESSES):
        taken(rate, [f"198.51.100.{number}"] * 20, 1.0)
    assert not rate.try_acquire("203.0.113.1", 1.0)
    assert rate.try_acquire("192.0.2.1", 1.0)


def test_an_exhausted_address_takes_nothing_from_others() -> None:
    rate = VerificationRate(0.0)
    assert taken(rate, ["192.0.2.1"] * 1000, 0.0) == ADDRESS_BURST
    assert taken(rate, ["192.0.2.2"] * 1000, 0.0) == ADDRESS_BURST


def test_a_proven_address_keeps_its_own_rate() -> None:
    """A tenant can make as many valid tokens as it likes."""
    rate = VerificationRate(0.0)
    count = 0
    for _ in range(1000):
        if rate.try_acquire("192.0.2.1", 0.0):
            count += 1
            rate.prove("192.0.2.1")
    assert count == ADDRESS_BURST


def test_proven_addresses_together_have_a_rate() -> None:
    rate = VerificationRate(0.0)
    addresses = [f"192.0.2.{number}" for number in range(int(PORT_BURST))]
    for address in addresses:
        assert rate.try_acquire(address, 0.0)
        rate.prove(address)
    assert taken(rate, addresses * 10, 0.0) == PORT_BURST
    assert taken(rate, addresses * 10, 1.0) == PORT_PER_S


def test_remembered_addresses_are_bounded() -> None:
    """The oldest proven address counts as any other then."""
    rate = VerificationRate(0.0)
    for number in range(MAX_ADDRESSES + 1):
        now_s = float(number)
        assert rate.try_acquire(f"192.0.2.{number}", now_s)
        rate.prove(f"192.0.2.{number}")
    now_s = float(MAX_ADDRESSES + 1)
    taken(rate, [f"198.51.100.{number}" for number in range(200)], now_s)
    assert not rate.try_acquire("192.0.2.0", now_s)
    assert rate.try_acquire("192.0.2.1", now_s)
