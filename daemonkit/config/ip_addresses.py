# SPDX-License-Identifier: Apache-2.0
"""What configurations ask of the text of an IP address."""

import ipaddress


def is_address(text: str) -> bool:
    """Whether the text is an IPv4 or IPv6 address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def is_loopback(text: str) -> bool:
    """Whether the text is an address of this host alone, or `localhost`."""
    return text == "localhost" or (is_address(text) and ipaddress.ip_address(text).is_loopback)
