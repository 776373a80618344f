# SPDX-License-Identifier: Apache-2.0
"""Services survive restarts of a guest, its agent and the bridge."""

import functools
import time
from collections.abc import Callable, Iterator

import pytest

from bridge_api.messages import ResultCode
from ruleset.document import Ruleset
from tests.lab_vm.machine import Machine
from tests.lab_vm.rules import service
from tests.lab_vm.site import Site

_SERVICES = (
    service("web", "10.96.0.10", "10.0.0.21", "10.0.0.22"),
    service("six", "fd00:96::10", "fd00::21"),
)


@pytest.fixture(autouse=True)
def desired(site: Site) -> Ruleset:
    """The ruleset that all guests have, and must have again."""
    made = site.ruleset(*_SERVICES)
    site.push(list(site.guests), made)
    assert all(is_served(guest) for guest in site.guests.values())
    return made


def is_served(guest: Machine) -> bool:
    """Whether its Services of both families are reachable."""
    return all(guest.end(ip, 80).endswith(":8080") for ip in ("10.96.0.10", "fd00:96::10"))


def applied(site: Site, guest: str) -> int:
    return len(site.log_lines(message="ruleset applied", guest=guest))


@pytest.mark.kernel("legacy")
@pytest.mark.parametrize(
    ("what", "commands"),
    [
        ("flushed", ("iptables-legacy -t nat -F", "ip6tables-legacy -t nat -F")),
        ("unhooked", ("iptables-legacy -t nat -D OUTPUT -j VCN-SERVICES",)),
        (
            "replaced by another program's",
            ("iptables-legacy-restore", "ip6tables-legacy-restore"),
        ),
    ],
)
def test_foreign_iptables_changes_are_repaired(site: Site, what: str, commands: tuple[str, ...]) -> None:
    # A rule of a mesh, whose position is kept.
    theirs = "-A OUTPUT -d 192.0.2.1/32 -j ACCEPT"
    emptied = "*nat\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n*filter\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n"

    def disturb(guest: Machine) -> None:
        for command in (*commands, f"iptables-legacy -t nat {theirs.replace('-A OUTPUT', '-I OUTPUT 1')}"):
            guest.output(*command.split(), stdin=emptied)

    for guest in disturbed(site, what, disturb):
        output = guest.output("iptables-legacy-save", "-t", "nat").splitlines()
        rules = [line for line in output if line.startswith("-A OUTPUT")]
        assert rules == [theirs, "-A OUTPUT -j VCN-SERVICES"]
        guest.output(*f"iptables-legacy -t nat {theirs.replace('-A', '-D')}".split())


@pytest.mark.kernel("nft")
@pytest.mark.parametrize(
    ("what", "commands"),
    [
        ("flushed", ("flush ruleset",)),
        ("deleted", ("delete table ip vcnode", "delete table ip6 vcnode")),
        ("unhooked", ("delete chain ip vcnode nat-output", "delete chain ip6 vcnode nat-output")),
        ("emptied", ("flush map ip vcnode services", "flush map ip6 vcnode endpoints")),
    ],
)
def test_foreign_nft_changes_are_repaired(site: Site, what: str, commands: tuple[str, ...]) -> None:
    # A rule of a mesh in iptables-nft's own table; both stay.
    theirs = "OUTPUT -d 192.0.2.1/32 -j ACCEPT"

    def disturb(guest: Machine) -> None:
        guest.output("nft", "-f", "-", stdin="\n".join(commands))
        guest.output(*f"iptables-nft -t nat -I {theirs}".split())

    for guest in disturbed(site, what, disturb):
        assert f"-A {theirs}" in guest.output("iptables-nft-save", "-t", "nat")
        tables = guest.output("nft", "list", "tables").splitlines()
        assert {"table ip vcnode", "table ip6 vcnode", "table ip nat"} <= set(tables)
        guest.output("nft", "delete table ip nat")


def disturbed(site: Site, what: str, disturb: Callable[[Machine], None]) -> Iterator[Machine]:
    """Disturb the rules of all guests, and yield each when it is repaired and the bridge has logged that."""
    repairs = {
        name: len(site.log_lines(message="drift of a guest repaired", guest=name)) for name in site.guests
    }
    began_s = time.monotonic()
    for guest in site.guests.values():
        disturb(guest)
    for name, guest in site.guests.items():
        guest.until(functools.partial(is_served, guest), f"served after its rules were {what}")
        site.wait_current(name)
        guest.until(
            lambda: len(site.log_lines(message="drift of a guest repaired", guest=name)) > repairs[name],  # noqa: B023 - used at once
            "reported as repaired",
        )
        yield guest
    site.figure(f"rules {what} in three guests, all back after {time.monotonic() - began_s:.1f} s")


@pytest.mark.parametrize(("name", "how"), [("a1", "reboot"), ("a2", "lose_power")])
def test_restarted_guest_has_its_services_back(site: Site, desired: Ruleset, name: str, how: str) -> None:
    before = {other: applied(site, other) for other in site.guests}
    guest = site.guests[name]
    boot_id = guest.output("cat", "/proc/sys/kernel/random/boot_id")
    attached = len(site.log_lines(message="guest attached", sandbox=name))
    getattr(guest, how)()
    attached_s = site.wait_attached(name, attached + 1)
    site.wait_current(name)
    guest.until(guest.is_up, "up")
    assert is_served(guest)
    assert guest.output("cat", "/proc/sys/kernel/random/boot_id") != boot_id
    site.figure(f"{name}: {how}, its agent at the node again after {attached_s:.1f} s")
    assert site.status()[name]["digest"] == desired.digest
    assert {other: applied(site, other) for other in site.guests} == before | {name: before[name] + 1}


def test_killed_agent_returns_and_applies_nothing_twice(site: Site, desired: Ruleset) -> None:
    before = {name: applied(site, name) for name in site.guests}
    attached = {name: len(site.log_lines(message="guest attached", sandbox=name)) for name in site.guests}
    began_s = time.monotonic()
    for guest in site.guests.values():
        guest.kill_agent()
        assert is_served(guest)
    for name in site.guests:
        site.wait_attached(name, attached[name] + 1)
        site.wait_current(name)
        assert site.log_lines(message="guest attached", sandbox=name)[-1]["digest"] == desired.digest[:16]
    site.figure(f"three agents killed, all at the node again after {time.monotonic() - began_s:.1f} s")
    assert {name: applied(site, name) for name in site.guests} == before


def test_killed_bridge_leaves_services_and_applies_nothing(site: Site, desired: Ruleset) -> None:
    attached = {name: len(site.log_lines(message="guest attached", sandbox=name)) for name in site.guests}
    before = {name: applied(site, name) for name in site.guests}
    site.stop_bridge()
    assert all(is_served(guest) for guest in site.guests.values())
    site.start_bridge()
    for name in site.guests:
        site.wait_attached(name, attached[name] + 1)
    results = site.push(list(site.guests), desired)
    assert {result.code for result in results.values()} == {ResultCode.UNCHANGED}
    assert {name: applied(site, name) for name in site.guests} == before
