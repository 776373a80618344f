# SPDX-License-Identifier: Apache-2.0
"""Addresses that no endpoint of a tenant may have."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncer.policy import addresses
from syncer.policy.sync_policy import Network
from tests.pump import steps

NEVER = [
    "0.0.0.0",  # noqa: S104 - an address to refuse
    "127.0.0.1",
    "127.255.0.1",
    "169.254.169.254",
    "169.254.170.2",
    "192.0.0.192",
    "100.100.100.200",
    "168.63.129.16",
    "224.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "fe80::1",
    "fe80::1%eth0",
    "ff02::1",
    "fd00:ec2::254",
    "fd00:ec2::253",
    "fd20:ce::254",
    "::ffff:169.254.169.254",
    "::169.254.169.254",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::a9fe:a9fe",
    "2002:a9fe:a9fe::1",
    "2001:0:1::1",
]


@pytest.mark.parametrize("text", NEVER)
def test_addresses_that_are_never_allowed(text: str) -> None:
    found = addresses.parse(text)
    assert found is not None
    assert addresses.is_never_allowed(found)


@pytest.mark.parametrize("text", ["10.0.0.1", "192.0.2.1", "2001:db8::1", "fd00::1", "::ffff:192.0.2.1"])
def test_addresses_that_a_policy_may_allow(text: str) -> None:
    found = addresses.parse(text)
    assert found is not None
    assert not addresses.is_never_allowed(found)


@pytest.mark.parametrize("value", [None, 1, True, "", "a", "010.0.0.1", "1.2.3", "10.0.0.0/8", [], {}])
def test_what_is_no_address(value: object) -> None:
    assert addresses.parse(value) is None


@given(st.ip_addresses(v=4))
def test_an_address_within_another_is_judged_as_itself(address: ipaddress.IPv4Address) -> None:
    number = int(address)
    for carrier in (
        f"::ffff:{address}",
        str(ipaddress.IPv6Address(0x64FF9B << 96 | number)),
        str(ipaddress.IPv6Address(0x2002 << 112 | number << 80 | 1)),
    ):
        assert addresses.parse(carrier) == address


# The first 96 bits, and how far the carried address is from the end.
_CARRIERS = {"mapped": (0xFFFF << 32, 0, 96), "compatible": (0, 0, 96)} | {
    "nat64": (0x64FF9B << 96, 0, 96),
    "6to4": (0x2002 << 112, 80, 16),
}


@pytest.mark.parametrize("form", _CARRIERS)
@given(st.integers(0, 2**32 - 1), st.integers(0, 2**80 - 1), st.integers(0, 128), st.data())
def test_a_network_of_what_carries_addresses_has_these(
    form: str, carried: int, behind: int, length: int, data: st.DataObject
) -> None:
    """What it has is found in it, and of the same form nothing else, whatever its length."""
    base, shift, form_length = _CARRIERS[form]
    first = base | carried << shift | (behind if shift else 0)
    network = ipaddress.IPv6Network((first, length), strict=False)
    (found,) = addresses.networks([str(network)])
    if length < form_length or (length >= 127 and int(network.network_address) <= 1):
        assert found == network
        return
    assert (found.version, found.prefixlen) == (4, min(length - form_length, 32))
    inside = network[data.draw(st.integers(0, network.num_addresses - 1))]
    other = ipaddress.IPv6Address(base | data.draw(st.integers(0, 2**32 - 1)) << shift)
    for address in (inside, other):
        parsed = addresses.parse(str(address))
        assert parsed is not None
        if parsed.version == 4:
            # All of 6to4 that is behind one address is that address.
            site = ipaddress.IPv6Network((int(address), form_length + 32), strict=False)
            assert (parsed in found) == site.overlaps(network)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
        ("::ffff:10.1.2.3", "10.1.2.3/32"),
        ("::10.0.0.0/104", "10.0.0.0/8"),
        ("64:ff9b::10.0.0.0/104", "10.0.0.0/8"),
        ("64:ff9b::/96", "0.0.0.0/0"),
        ("2002:a00::/24", "10.0.0.0/8"),
        ("2002:a00:1::/48", "10.0.0.1/32"),
        ("2002:a00:1:5::/64", "10.0.0.1/32"),
        ("2002::/16", "0.0.0.0/0"),
        ("2002::/15", "2002::/15"),
        ("::/0", "::/0"),
        ("::/95", "::/95"),
        ("::1", "::1/128"),
        ("::/127", "::/127"),
        ("fd00::/8", "fd00::/8"),
        ("10.0.0.0/8", "10.0.0.0/8"),
    ],
)
def test_networks_as_they_are_judged(text: str, expected: str) -> None:
    assert addresses.networks([text, "nothing"]) == (ipaddress.ip_network(expected),)


def _network(address: addresses.Address, bits: int) -> Network:
    return ipaddress.ip_network(f"{address}/{bits}", strict=False)


_NETWORKS = st.one_of(
    st.builds(_network, st.ip_addresses(v=4, network="10.0.0.0/12"), st.integers(8, 32)),
    st.builds(_network, st.ip_addresses(v=6, network="fd00::/112"), st.integers(100, 128)),
)
_NEAR = st.one_of(st.ip_addresses(v=4, network="10.0.0.0/12"), st.ip_addresses(v=6, network="fd00::/112"))


@given(st.lists(_NETWORKS, max_size=8), st.lists(_NEAR, min_size=1, max_size=8))
def test_ranges_have_the_addresses_of_their_networks(
    networks: list[Network], near: list[addresses.Address]
) -> None:
    ranges = addresses.Ranges(networks)
    ends = [end for each in networks for end in (each.network_address, each.broadcast_address)]
    for end in (*near, *ends):
        assert (end in ranges) == any(end in each for each in networks)
        beside = end + 1 if int(end) + 1 < 1 << end.max_prefixlen else end
        assert (beside in ranges) == any(beside in each for each in networks)


def test_no_address_is_compared_with_each_range() -> None:
    def work(size: int) -> int:
        ranges = addresses.Ranges([ipaddress.ip_network(f"10.{n}.0.0/16") for n in range(size)])
        asked = [ipaddress.ip_address(f"11.{n}.0.1") for n in range(size)]
        return steps(lambda: [each in ranges for each in asked])

    one, two, four = work(32), work(64), work(128)
    assert four - two <= 2 * (two - one)


_NETWORKS = st.one_of(
    st.builds(
        lambda address, length: ipaddress.ip_network((address, length), strict=False),
        st.integers(0, 2**32 - 1),
        st.integers(0, 32),
    ),
    st.builds(
        lambda address, length: ipaddress.ip_network((address << 96, length), strict=False),
        st.integers(1, 2**32 - 1),
        st.integers(0, 128),
    ),
)


@given(st.lists(st.tuples(st.lists(_NETWORKS, max_size=4), st.booleans()), max_size=6), st.data())
def test_networks_that_come_and_go(steps: list[tuple[list[Network], bool]], data: st.DataObject) -> None:
    """As a list of them answers, whatever came and went."""
    counted, there = addresses.CountedNetworks(), list[Network]()
    for added, ends in steps:
        gone = there[::2] if ends else []
        is_other = counted.change(gone, added)
        before, there = there, [*there, *added]
        for each in gone:
            there.remove(each)
        assert is_other >= (set(before) != set(there))
    if there:
        network = data.draw(st.sampled_from(there))
        address = network[data.draw(st.integers(0, network.num_addresses - 1))]
        found = [each.prefixlen for each in there if each.version == address.version and address in each]
        assert counted.longest_prefix(address) == max(found)
    assert counted.longest_prefix(ipaddress.ip_address("192.0.2.1")) == max(
        (each.prefixlen for each in there if ipaddress.ip_address("192.0.2.1") in each), default=None
    )
