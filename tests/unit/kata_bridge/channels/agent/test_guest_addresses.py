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
def test_an_address_has_one_form(text: str, canonical: str | None) -> None:
    found = parse_address(text)
    assert (None if found is None else str(found)) == canonical


def test_a_certificate_comes_out_of_its_sandboxs_own_addresses() -> None:
    made = GuestAddresses()
    made.take([appeared("a", "10.0.0.1", "fd00::1"), appeared("b", "10.0.0.2"), appeared("silent")])
    why = "its certificate came from 10.0.0.2, which is not its sandbox's address"
    assert {
        (sandbox, text): made.why_not(sandbox, address(text))
        for sandbox in ("a", "silent", "nobody")
        for text in ("10.0.0.1", "::ffff:10.0.0.1", "fd00:0::1", "10.0.0.2")
    } == {
        ("a", "10.0.0.1"): "",
        ("a", "::ffff:10.0.0.1"): "",
        ("a", "fd00:0::1"): "",
        ("a", "10.0.0.2"): why,
        # Of these nobody has told an address.
        **{(name, text): "" for name in ("silent", "nobody") for text in ("10.0.0.1", "::ffff:10.0.0.1")},
        **{(name, text): "" for name in ("silent", "nobody") for text in ("fd00:0::1", "10.0.0.2")},
    }


def test_behind_a_gateway_anyone_may_be() -> None:
    made = GuestAddresses([ipaddress.ip_network("192.0.2.0/30"), ipaddress.ip_network("2001:db8::/64")])
    made.take([appeared("a", "10.0.0.1"), appeared("b", "192.0.2.1")])
    assert made.why_not("a", address("192.0.2.2")) == ""
    assert made.why_not("a", address("2001:db8::7")) == ""
    assert made.why_not("a", address("192.0.2.4")) != ""
    assert made.is_guests(address("10.0.0.1"))
    assert not made.is_guests(address("192.0.2.1")), "others are behind it too"


def test_what_is_known_follows_the_sandboxes() -> None:
    made = GuestAddresses()
    made.take([appeared("a", "10.0.0.1"), appeared("b", "10.0.0.1")])
    assert not made.is_guests(address("10.0.0.1")), "tenants' networks may overlap"
    made.take([Vanished("a")])
    assert made.is_guests(address("10.0.0.1"))
    made.take([appeared("b", "10.0.0.2")])
    assert not made.is_guests(address("10.0.0.1"))
    assert made.why_not("b", address("10.0.0.1")) != ""
    made.take([Vanished("b"), Vanished("never seen")])
    assert len(made) == 0
    assert not made.is_guests(address("10.0.0.2"))


def test_the_nodes_addresses_are_no_guests() -> None:
    made = GuestAddresses()
    made.take([appeared("host", "192.168.0.1", is_host_network=True), appeared("odd", "no address")])
    assert len(made) == 0
    assert not made.is_guests(address("192.168.0.1"))
