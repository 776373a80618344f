# SPDX-License-Identifier: Apache-2.0
"""Which addresses a kubeconfig that a user wrote may lead to. Pure."""

import ipaddress

# Of cloud providers, beside 169.254.169.254: who asks there is taken for the machine.
_METADATA = frozenset(
    map(
        ipaddress.ip_address,
        ("100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254"),
    )
)


def refusal(text: str) -> str:
    """Why no daemon connects to the address; empty if it may be a tenant's API server."""
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return "it is no address"
    address = found if isinstance(found, ipaddress.IPv4Address) else found.ipv4_mapped or found
    if address.is_loopback or address.is_unspecified:
        return "each machine reaches itself by it"
    if address in _METADATA or address.is_link_local:
        return "it is of each machine's own link, or of cloud metadata"
    if address.is_multicast or address.is_reserved:
        return "it is the address of no single machine"
    return ""
