# SPDX-License-Identifier: Apache-2.0
"""Which address of a server is dialled next."""

from hypothesis import given
from hypothesis import strategies as st

from vnagent.core.dial_order import MAX_DIALS, MAX_HOSTS, DialOrder

HOSTS = ("192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4")


def order_of(order: DialOrder) -> list[str]:
    """All addresses in the order in which a request would dial them, were its dials not bounded."""
    found: list[str] = []
    while (host := order.next_host(found)) not in found:
        found.append(host)
    return found


def test_the_first_address_is_dialled_until_it_fails() -> None:
    order = DialOrder(HOSTS)
    assert order_of(order) == [*HOSTS]
    order.move_back(HOSTS[0])
    assert order_of(order) == [*HOSTS[1:], HOSTS[0]]


def test_two_failures_of_one_address_leave_the_next_one_first() -> None:
    order = DialOrder(HOSTS[:2])
    order.move_back(HOSTS[0])
    order.move_back(HOSTS[0])
    assert order_of(order) == [HOSTS[1], HOSTS[0]]


def test_a_request_dials_few_addresses() -> None:
    order = DialOrder(HOSTS)
    failed: list[str] = []
    while order.has_other(failed, len(failed)):
        failed.append(order.next_host(failed))
    assert failed == [*HOSTS[:MAX_DIALS]]
    assert not order.has_other([], MAX_DIALS)  # of one address, dialled again without its session
    assert not DialOrder(HOSTS[:1]).has_other(HOSTS[:1], 1)


def test_an_only_address_is_dialled_again() -> None:
    assert DialOrder(HOSTS[:1]).next_host(HOSTS[:1]) == HOSTS[0]
    assert DialOrder(()).next_host(()) == DialOrder([""]).next_host(()) == ""


def test_new_addresses_are_behind_known_ones() -> None:
    """DNS servers rotate their answers, and the address that works stays the first."""
    order = DialOrder(HOSTS[:3])
    order.move_back(HOSTS[0])
    order.update([HOSTS[3], HOSTS[0], HOSTS[2]])
    assert order_of(order) == [HOSTS[2], HOSTS[0], HOSTS[3]]


@given(
    st.lists(st.integers(0, 40).map(str)), st.lists(st.integers(0, 40).map(str)), st.integers(0, 40).map(str)
)
def test_each_address_is_there_once(first: list[str], second: list[str], failed: str) -> None:
    order = DialOrder(first)
    order.move_back(failed)
    order.update(second)
    order.move_back(failed)
    found = order_of(order)
    assert sorted(found) == sorted([*dict.fromkeys(second)][:MAX_HOSTS] or [""])
