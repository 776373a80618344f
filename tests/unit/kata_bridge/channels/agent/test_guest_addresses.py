# SPDX-License-Identifier: Apache-2.0
import ipaddress

import pytest

from kata_bridge.channels.agent.guest_addresses import Address, GuestAddresses, parse_address
from kata_bridge.sandboxes.core.sandbox import Appeared, Sandbox, Vanished


def appeared(name: str, *ips: str, is_host_network: bool = False) -> Appeared:
    return Appeared(Sandbox(name, "n", name, f"uid-{name}", ips=ips, is_host_network=is_host_network))


def address(text: str) -> Address:
    found = parse_address(text)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:DB8:0::1", "2001:db8::1"),
        ("fe80::1%eth0", "fe80::1"),
        ("10.0.0.1/24", None),
        ("", None),
    ],
)
def test_address_has_one_form(text: str, canonical: str | None) -> None:
    found = parse_address(text)
    assert (None if found is None else str(found)) == canonical


def test_certificate_is_bound_to_its_sandboxs_addresses() -> None:
    addresses = GuestAddresses()
    addresses.update([appeared("a", "10.0.0.1", "fd00::1"), appeared("b", "10.0.0.2"), appeared("silent")])
    why = "the certificate came from 10.0.0.2, which is not its sandbox's address"
    assert {
        (sandbox, text): addresses.mismatch(sandbox, address(text))
        for sandbox in ("a", "silent", "nobody")
        for text in ("10.0.0.1", "::ffff:10.0.0.1", "fd00:0::1", "10.0.0.2")
    } == {
        ("a", "10.0.0.1"): "",
        ("a", "::ffff:10.0.0.1"): "",
        ("a", "fd00:0::1"): "",
        ("a", "10.0.0.2"): why,
        # The addresses of these are unknown.
        **{(name, text): "" for name in ("silent", "nobody") for text in ("10.0.0.1", "::ffff:10.0.0.1")},
        **{(name, text): "" for name in ("silent", "nobody") for text in ("fd00:0::1", "10.0.0.2")},
    }


def test_any_guest_may_be_behind_a_gateway() -> None:
    addresses = GuestAddresses([ipaddress.ip_network("192.0.2.0/30"), ipaddress.ip_network("2001:db8::/64")])
    addresses.update([appeared("a", "10.0.0.1"), appeared("b", "192.0.2.1")])
    assert addresses.mismatch("a", address("192.0.2.2")) == ""
    assert addresses.mismatch("a", address("2001:db8::7")) == ""
    assert addresses.mismatch("a", address("192.0.2.4")) != ""
    assert addresses.has_single_owner(address("10.0.0.1"))
    assert not addresses.has_single_owner(address("192.0.2.1")), "others are behind it too"


def test_addresses_follow_the_sandboxes() -> None:
    addresses = GuestAddresses()
    addresses.update([appeared("a", "10.0.0.1"), appeared("b", "10.0.0.1")])
    assert not addresses.has_single_owner(address("10.0.0.1")), "tenants' networks may overlap"
    addresses.update([Vanished("a")])
    assert addresses.has_single_owner(address("10.0.0.1"))
    addresses.update([appeared("b", "10.0.0.2")])
    assert not addresses.has_single_owner(address("10.0.0.1"))
    assert addresses.mismatch("b", address("10.0.0.1")) != ""
    addresses.update([Vanished("b"), Vanished("never seen")])
    assert len(addresses) == 0
    assert not addresses.has_single_owner(address("10.0.0.2"))


def test_host_network_pod_adds_no_address() -> None:
    addresses = GuestAddresses()
    addresses.update([appeared("host", "192.168.0.1", is_host_network=True), appeared("odd", "no address")])
    assert len(addresses) == 0
    assert not addresses.has_single_owner(address("192.168.0.1"))
