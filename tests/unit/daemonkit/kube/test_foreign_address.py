# SPDX-License-Identifier: Apache-2.0
"""Which addresses a kubeconfig of somebody else may lead to."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemonkit.kube.foreign_address import refusal

SELF = "each machine reaches itself by it"
LINK = "it is of each machine's own link, or of cloud metadata"
NOBODY = "it is the address of no single machine"


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("10.96.0.1", ""),
        ("192.0.2.7", ""),
        ("2001:db8::7", ""),
        ("fd00::7", ""),
        ("::ffff:192.0.2.7", ""),
        ("127.0.0.1", SELF),
        ("127.9.9.9", SELF),
        (str(ipaddress.IPv4Address(0)), SELF),
        ("::1", SELF),
        ("::", SELF),
        ("::ffff:127.0.0.1", SELF),
        ("169.254.169.254", LINK),
        ("::ffff:169.254.169.254", LINK),
        ("169.254.0.1", LINK),
        ("fe80::1", LINK),
        ("fe80::1%eth0", LINK),
        ("100.100.100.200", LINK),
        ("168.63.129.16", LINK),
        ("fd00:ec2::254", LINK),
        ("224.0.0.1", NOBODY),
        ("ff02::1", NOBODY),
        ("255.255.255.255", NOBODY),
        ("64:ff9b::a9fe:a9fe", NOBODY),
        ("a.example", "it is no address"),
    ],
)
def test_addresses_of_no_tenant_are_refused(address: str, why: str) -> None:
    assert refusal(address) == why


@given(st.ip_addresses(network="127.0.0.0/8") | st.ip_addresses(network="169.254.0.0/16"))
def test_no_form_of_them_is_taken(address: ipaddress.IPv4Address) -> None:
    assert refusal(str(address))
    assert refusal(f"::ffff:{address}")
