# SPDX-License-Identifier: Apache-2.0
"""Reduced texts of resolv.conf, in full."""

import pytest

from dnsconfig.resolve.decision import MAX_TEXT_BYTES
from dnsconfig.resolve.network import ClusterIps, RevocableAddresses
from dnsconfig.retention.revoked_servers import has_revoked, without_revoked

WHY = (
    "# The DNS server of network blue (Service kube-system/kube-dns-blue) is gone, "
    "and its address may be another Service's by now.\n"
)


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (("10.0.0.1",), ("10.0.0.1",), False),
        (("10.0.0.1",), ("fd00::1", "10.0.0.1"), False),
        (("10.0.0.1",), (), True),
        (("10.0.0.1",), ("10.0.0.2",), True),
        (("10.0.0.1", "fd00::1"), ("10.0.0.1",), True),
    ],
)
def test_an_address_without_its_service_is_revoked(
    before: tuple[str, ...], now: tuple[str, ...], expected: bool
) -> None:
    assert has_revoked(before, ClusterIps(now)) is expected


@pytest.mark.parametrize(
    ("text", "lost", "is_host_network", "expected"),
    [
        (
            "search shop.svc.cluster.local\nnameserver 10.0.0.1\noptions ndots:5\n",
            ("10.0.0.1",),
            False,
            "search shop.svc.cluster.local\noptions ndots:5\n",
        ),
        # The author's own stay in order; also if the network's has two addresses.
        (
            "nameserver 10.0.0.1\nnameserver fd00::1\nnameserver 192.0.2.53\n",
            ("10.0.0.1", "fd00::1"),
            False,
            "nameserver 192.0.2.53\n",
        ),
        # The author names the network's server too, in other forms.
        (
            "nameserver 10.0.0.1\nnameserver fd00:0::1\nnameserver ::ffff:10.0.0.1\n",
            ("10.0.0.1", "fd00::1"),
            False,
            "",
        ),
        ("nameserver 10.0.0.11\n", ("10.0.0.1",), False, "nameserver 10.0.0.11\n"),
        ("nameserver ns\noptions nameserver\n", ("10.0.0.1",), False, "nameserver ns\noptions nameserver\n"),
        # 127.0.0.1 would be the host.
        ("nameserver 10.0.0.1\n", ("10.0.0.1",), True, "nameserver 100::1\n"),
        ("nameserver 10.0.0.1\nnameserver 192.0.2.53\n", ("10.0.0.1",), True, "nameserver 192.0.2.53\n"),
        # Other line separators are not ours.
        ("options a\x85nameserver 10.0.0.1\n", ("10.0.0.1",), False, "options a\x85nameserver 10.0.0.1\n"),
    ],
)
def test_revoked_servers_are_removed_from_the_text(
    text: str, lost: tuple[str, ...], is_host_network: bool, expected: str
) -> None:
    assert (
        without_revoked(
            text, RevocableAddresses("blue", lost), MAX_TEXT_BYTES, is_host_network=is_host_network
        )
        == WHY + expected
    )


def test_the_comment_is_within_musls_line_limit() -> None:
    """It reads lines of 255 bytes."""
    lost = RevocableAddresses("b" * 54, ("10.0.0.1",))
    (line,) = without_revoked(
        "nameserver 10.0.0.1\n", lost, MAX_TEXT_BYTES, is_host_network=False
    ).splitlines()
    assert line.startswith("# ")
    assert len(line) < 255


def test_the_comment_is_omitted_above_the_text_limit() -> None:
    text = f"nameserver 10.0.0.1\noptions {'x' * (MAX_TEXT_BYTES - 29)}\n"
    assert len(text) == MAX_TEXT_BYTES
    left = without_revoked(
        text, RevocableAddresses("blue", ("10.0.0.1",)), MAX_TEXT_BYTES, is_host_network=False
    )
    assert left == text.removeprefix("nameserver 10.0.0.1\n")
