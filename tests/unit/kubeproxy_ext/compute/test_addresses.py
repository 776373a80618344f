# SPDX-License-Identifier: Apache-2.0
"""Addresses come out as a packet filter prints them, or not at all."""

import ipaddress
import itertools
import socket
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeproxy_ext.compute.addresses import (
    AddressRange,
    canonical_cidr,
    canonical_ip,
    contains,
    family_of,
    merge_ranges,
    parse_range,
)
from ruleset.model import Family


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("172.30.0.41", "172.30.0.41"),
        ("192.168.000.010", "192.168.0.10"),
        ("10.0.0.08", "10.0.0.8"),
        ("fd00:10:180:0:0:0:0:1", "fd00:10:180::1"),
        ("FD00::A", "fd00::a"),
        ("::ffff:1.2.3.4", "1.2.3.4"),
        ("::102:304", "::1.2.3.4"),
        ("::1:0", "::0.1.0.0"),
        ("::ffff", "::ffff"),
        ("", None),
        ("None", None),
        ("1.2.3", None),
        ("1.2.3.4.5", None),
        ("1.2.3.256", None),
        ("1.2.3.-4", None),
        ("1.2.3.٤", None),
        (" 1.2.3.4", None),
        ("1.2.3.4\n-A INPUT", None),
        ("1.2.3." + "0" * 17, None),
        ("fe80::1%eth0", None),
        ("fd00:::1", None),
    ],
)
def test_canonical_ip(text: str, canonical: str | None) -> None:
    assert canonical_ip(text) == canonical


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("203.0.113.0/25", "203.0.113.0/25"),
        ("203.0.113.77/25", "203.0.113.0/25"),
        ("010.0.0.0/08", "10.0.0.0/8"),
        ("fd00:0::/64", "fd00::/64"),
        ("0.0.0.0/0", "0.0.0.0/0"),
        ("203.0.113.0", None),
        ("203.0.113.0/", None),
        ("203.0.113.0/33", None),
        ("203.0.113.0/255.255.255.0", None),
        ("::ffff:1.2.3.0/120", None),
        ("fd00::/129", None),
    ],
)
def test_canonical_cidr(text: str, canonical: str | None) -> None:
    assert canonical_cidr(text) == canonical
    assert (parse_range(text) is None) == (canonical is None)


def test_range_contains_its_addresses() -> None:
    half = parse_range("203.0.113.0/25")
    assert half == AddressRange(Family.IPV4, 0xCB007100, 0xCB00717F)
    assert contains([half], "203.0.113.2")
    assert not contains([half], "203.0.113.130")
    assert not contains([], "203.0.113.2")


@given(
    st.lists(st.tuples(st.integers(0, 255), st.integers(24, 32)), max_size=12),
    st.integers(0, 255),
)
def test_merged_ranges_contain_the_same_addresses(found: list[tuple[int, int]], last: int) -> None:
    ranges = [one for start, bits in found if (one := parse_range(f"192.0.2.{start}/{bits}")) is not None]
    together = merge_ranges(ranges)
    number = 0xC0000200 + last
    assert contains(together, f"192.0.2.{last}") == any(one.first <= number <= one.last for one in ranges)
    assert all(one.last + 1 < after.first for one, after in itertools.pairwise(together))


def test_contains_is_a_binary_search() -> None:
    looks = 0

    class Ranges(Sequence[AddressRange]):
        def __len__(self) -> int:
            return 5_000

        def __getitem__(self, at: Any) -> Any:
            nonlocal looks
            looks += 1
            return AddressRange(Family.IPV4, 10 * at, 10 * at + 1)

    assert contains(Ranges(), "0.0.195.71")  # 49 991, the very last
    assert looks < 20


@given(st.ip_addresses() | st.integers(0, 1 << 33).map(ipaddress.IPv6Address))
def test_canonical_ip_keeps_every_address(ip: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    found = canonical_ip(str(ip))
    assert found is not None
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    shown = mapped or ip
    # What iptables and nft print an address with.
    kind = socket.AF_INET if shown.version == 4 else socket.AF_INET6
    assert found == socket.inet_ntop(kind, shown.packed)
    assert canonical_ip(found) == found
    assert family_of(found) is (Family.IPV4 if mapped or ip.version == 4 else Family.IPV6)


@given(st.text())
def test_no_text_breaks_canonical_ip(text: str) -> None:
    found = canonical_ip(text)
    assert found is None or canonical_ip(found) == found
    canonical_cidr(text)
    parse_range(text)
