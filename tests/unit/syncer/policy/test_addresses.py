# SPDX-License-Identifier: Apache-2.0
"""Addresses that no endpoint of a tenant may have."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncer.policy import addresses

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


@given(st.ip_addresses() | st.sampled_from([each.network_address for each in addresses._NEVER]))  # noqa: SLF001
def test_ranges_are_networks(address: addresses.Address) -> None:
    for shifted in (address, _next(address, -1), _next(address, 1)):
        expected = addresses.is_in(shifted, addresses._NEVER)  # noqa: SLF001
        assert addresses.is_never_allowed(shifted) == expected


def _next(address: addresses.Address, by: int) -> addresses.Address:
    largest = (1 << address.max_prefixlen) - 1
    return type(address)(min(max(int(address) + by, 0), largest))
