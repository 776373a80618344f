# SPDX-License-Identifier: Apache-2.0
"""The error without namespaces, and the output of `ip`. tests/lab has namespaces."""

import os
import shutil
import sys

import pytest

from vcnode.terminal import ToolError
from vcnode_demo import vpc

_ETHER = "mtu 1500 qdisc noqueue state UP \\    link/ether 8a:00:00:00:00:0{} brd ff:ff:ff:ff:ff:ff"
IP = "\n".join(
    [
        "1: lo: <LOOPBACK,UP> mtu 65536 \\    link/loopback 00:00:00:00:00:00 brd 00:00:00:00:00:00",
        f"2: acme: <BROADCAST,MULTICAST,UP> {_ETHER.format(1)}",
        f"3: acme-front@if2: <BROADCAST,UP> {_ETHER.format(2)} link-netnsid 0",
        "",
    ]
)


def test_links_with_a_hardware_address() -> None:
    assert vpc.links_of(IP) == {"acme": "8a:00:00:00:00:01", "acme-front": "8a:00:00:00:00:02"}
    assert vpc.links_of("") == {}


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The programs that are there, on a Linux with root; those that are run print nothing."""
    there = {"ip", "nsenter", "unshare", "setpriv", "iptables", "nft"}
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda name, path: name if name in there else None)
    monkeypatch.setattr(vpc, "run", lambda _argv, _given="": "")
    return there


def test_no_requirement_is_missing(programs: set[str]) -> None:
    assert vpc.missing_requirement() == ""
    programs.remove("iptables")
    assert vpc.missing_requirement() == "", "the guests' agents write nft as well"


@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        ({"ip"}, "needs iproute2"),
        ({"iptables", "nft"}, "needs iptables"),
        ({"ip", "nft", "iptables", "setpriv", "unshare"}, "needs iproute2 and iptables and util-linux"),
    ],
)
def test_missing_programs_are_named_by_their_packages(
    programs: set[str], missing: set[str], expected: str
) -> None:
    programs -= missing
    assert vpc.missing_requirement() == expected


def test_root_and_linux_are_required(programs: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert programs
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert vpc.missing_requirement() == "needs root"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert vpc.missing_requirement() == "needs Linux"


def test_denied_namespaces_are_a_missing_requirement(
    programs: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert programs

    def refuses(_argv: object, _given: str = "") -> str:
        raise ToolError("unshare: Operation not permitted")

    monkeypatch.setattr(vpc, "run", refuses)
    assert (
        vpc.missing_requirement()
        == "needs what this kernel or container does not allow: unshare: Operation not permitted"
    )
