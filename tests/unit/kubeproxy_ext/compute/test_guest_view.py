# SPDX-License-Identifier: Apache-2.0
"""Equal views are equal values, and malformed ones raise."""

import pytest

from kubeproxy_ext.compute.guest_view import EVERY_NETWORK, GuestView, ServiceGroup
from ruleset.model import Family


def view(
    networks: tuple[str, ...] = (), pod_ips: tuple[str, ...] = (), cidrs: tuple[str, ...] = ()
) -> GuestView:
    return GuestView("t", networks, pod_ips, "here", None, cidrs, Family.IPV4)


def test_no_network_means_default() -> None:
    assert view().networks == ("default",)
    assert view().groups == (ServiceGroup("t", EVERY_NETWORK), ServiceGroup("t", "default"))


def test_views_are_canonical() -> None:
    assert view(
        ("green", "blue", "green"), ("fd00:0::1", "10.0.0.01"), ("172.30.9.9/16", "FD00::/64")
    ) == view(("blue", "green"), ("10.0.0.1", "fd00::1"), ("fd00::/64", "172.30.0.0/16"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"pod_ips": ("10.0.0",)}, "not an IP address: '10.0.0'"),
        ({"cidrs": ("172.30.0.0",)}, "not an address range: '172.30.0.0'"),
        ({"networks": ("",)}, "a network has an empty name"),
    ],
)
def test_malformed_views_raise(given: dict[str, tuple[str, ...]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        view(**given)
