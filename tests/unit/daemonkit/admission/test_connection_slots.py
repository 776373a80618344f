# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemonkit.admission.connection_slots import ConnectionSlots, client_address_of


@pytest.mark.parametrize(
    ("host", "client_address"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
        ("no address", "no address"),
        ("bad\0", "bad\0"),
    ],
)
def test_an_address_is_an_ipv4_address_or_an_ipv6_network(host: str, client_address: str) -> None:
    assert client_address_of(host) == client_address


def test_the_address_with_most_loses_its_oldest() -> None:
    slots: ConnectionSlots[str] = ConnectionSlots(5)
    assert [slots.add(name, name[0]) for name in ("b1", "a1", "a2", "b2", "a3")] == [None] * 5
    assert slots.add("c1", "c") == "a1"  # a has three
    assert slots.add("c2", "c") == "b1"  # a and b have two each, b for longer
    assert slots.discard("a2")
    assert slots.add("d1", "d") is None
    assert slots.add("d2", "d") == "c1"
    assert len(slots) == 5
    assert "c1" not in slots
    assert "d2" in slots


def test_a_flood_from_one_address_evicts_only_itself() -> None:
    slots: ConnectionSlots[str] = ConnectionSlots(100)
    slots.add("honest", "h")
    evicted = [slots.add(f"flood {number}", "f") for number in range(10_000)]
    assert "honest" in slots
    assert "honest" not in evicted
    assert evicted[99:102] == ["flood 0", "flood 1", "flood 2"]


def test_without_connections_nothing_is_evicted() -> None:
    slots: ConnectionSlots[str] = ConnectionSlots(3)
    assert slots.evict() is None
    assert not slots.discard("a1")


@given(st.lists(st.tuples(st.booleans(), st.sampled_from("abcde"), st.integers(0, 6)), max_size=150))
def test_evict_agrees_with_a_full_search(events: list[tuple[bool, str, int]]) -> None:
    slots: ConnectionSlots[str] = ConnectionSlots(6)
    open_connections: dict[str, None] = {}
    for is_add, client_address, number in events:
        name = f"{client_address}{number}"
        if not is_add:
            assert slots.discard(name) == (name in open_connections)
            open_connections.pop(name, None)
        elif name not in open_connections:
            by_source = {
                each[0]: [one for one in open_connections if one[0] == each[0]] for each in open_connections
            }
            evicted = slots.add(name, client_address)
            assert (evicted is not None) == (len(open_connections) == 6)
            if evicted is not None:
                assert len(by_source[evicted[0]]) == max(len(each) for each in by_source.values())
                assert by_source[evicted[0]][0] == evicted
                del open_connections[evicted]
            open_connections[name] = None
        assert len(slots) == len(open_connections)
        assert all(each in slots for each in open_connections)
