# SPDX-License-Identifier: Apache-2.0
"""Faults of the node: a full disk, a clock that jumps, a ruleset larger than a message."""

import contextlib
import sys
from pathlib import Path

import pytest

from bridge_api.messages import ResultCode
from devkit.kata.sample_rulesets import sample
from ruleset.document import Ruleset, make_ruleset
from ruleset.model import Endpoint, EndpointSet, Family, Frontend, GuestRules, Protocol, ServiceRules
from ruleset.names import Backend
from ruleset.render.iptables import render as render_iptables
from ruleset.render.nft import render as render_nft
from tests import moved_clock
from tests.lab.kata_bridge.daemon import DEADLINE_S, PROGRAM, push, running
from tests.lab.namespaces import Lab

MESSAGE_BYTES = 4 << 20
# Runs the daemon with its state on a disk of 128 KiB, which is full if `full` is given.
_SMALL_DISK = """
state=$1 full=$2; shift 2
mkdir -p "$state" && mount -t tmpfs -o size=128k,mode=0700 tmpfs "$state" || exit 9
if [ "$full" = full ]; then dd if=/dev/zero of="$state/filler" bs=4k 2> /dev/null; fi
exec "$@"
"""


def on_a_small_disk(directory: Path, how: str) -> tuple[str, ...]:
    script = ("unshare", "--mount", "sh", "-c", _SMALL_DISK, "sh")
    return (*script, str(directory / "state"), how, *PROGRAM)


def fill(path: Path) -> None:
    """Write until there is no room."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))


def test_full_disk_delays_new_agents_only(lab: Lab, tmp_path: Path) -> None:
    with running(tmp_path, agent={"socket": str(tmp_path / "agents.sock")}) as daemon:
        daemon.program = on_a_small_disk(tmp_path, "empty")
        # Namespaces that are created later are not in its mount namespace.
        after = lab.namespace("after")
        daemon.guest("before", lab.namespace("before"))
        daemon.file("by-agent", channels=["agent"])
        daemon.start()
        assert daemon.process is not None
        state = Path(f"/proc/{daemon.process.pid}/root{tmp_path}/state")
        daemon.until((state / "sandboxes" / "by-agent" / "tls.crt").exists)
        fill(state / "filler")
        daemon.guest("after", after)
        daemon.file("late-agent", channels=["agent"])
        daemon.until(lambda: len(daemon.status()) == 4)
        for generation in (1, 2):
            (results,) = push(daemon, ["before", "after"], sample(generation, generation + 1))
            assert {result.code for result in results.values()} == {ResultCode.APPLIED}
        daemon.until(lambda: "No space left on device" in daemon.status()["late-agent"]["message"])
        assert daemon.series("vcnode_katabridge_state_errors_total") > 0
        (state / "filler").unlink()
        daemon.until((state / "sandboxes" / "late-agent" / "tls.crt").exists)
        (results,) = push(daemon, ["before", "after"], sample(3, 4))
        assert {result.code for result in results.values()} == {ResultCode.APPLIED}
        assert daemon.stop() == 0


def test_daemon_starts_on_a_full_disk(lab: Lab, tmp_path: Path) -> None:
    with running(tmp_path) as daemon:
        daemon.program = on_a_small_disk(tmp_path, "full")
        daemon.guest("web", lab.namespace("web"))
        daemon.start()
        (results,) = push(daemon, ["web"], sample(1))
        assert results["web"].code is ResultCode.APPLIED
        assert daemon.stop() == 0
    other = tmp_path / "other"
    other.mkdir()
    with running(other, agent={"socket": str(tmp_path / "agents.sock")}) as daemon:
        daemon.program = on_a_small_disk(other, "full")
        daemon.start(is_awaited=False)
        assert daemon.process is not None
        # Without certificates no guest can be identified.
        assert daemon.process.wait(DEADLINE_S) == 1
        assert "cannot start" in daemon.log()
        assert "No space left on device" in daemon.log()


def test_clock_jumps_have_no_effect(lab: Lab, tmp_path: Path) -> None:
    guest = lab.namespace("web")
    clock = tmp_path / "clock"
    moved_clock.move(clock, 0.0)
    with running(tmp_path) as daemon:
        daemon.program = (sys.executable, "-m", "tests.moved_clock", str(clock), "wall", "kata_bridge")
        daemon.guest("web", guest)
        daemon.start()
        push(daemon, ["web"], sample(1))
        for number, jump_s in enumerate((86_400 * 400, -86_400 * 400, 0), 1):
            moved_clock.move(clock, jump_s)
            (results,) = push(daemon, ["web"], sample(number + 1, number + 2))
            assert results["web"].code is ResultCode.APPLIED
            guest.run("nft", "flush", "ruleset")
            daemon.until(lambda: daemon.series("vcnode_katabridge_drift_repairs_total") == number)  # noqa: B023 - used at once
            daemon.until(lambda: daemon.status()["web"]["state"] == "current")
        assert daemon.stop() == 0


# Services and endpoints of each that make more than 4 MiB of text. Few chains in nft: the kernel's
# work for one transaction grows with their square (8 000: 5 s).
_LARGE = {Backend.IPTABLES: (13_000, 2), Backend.NFT: (2_000, 110)}


def large(backend: Backend) -> Ruleset:
    count, endpoints = _LARGE[backend]
    services = []
    for number in range(count):
        high, low = divmod(number, 250)
        name = f"n/s{number}:p"
        targets = tuple(Endpoint(f"10.{one + 1}.{high}.{low}", 8080) for one in range(endpoints))
        target = EndpointSet(name, Protocol.TCP, False, targets)
        frontends = (Frontend(f"10.96.{high}.{low}", 80, Protocol.TCP, name, target),)
        services.append(ServiceRules(name, frontends))
    rules = GuestRules(Family.IPV4, tuple(services), ("10.96.0.0/16",))
    return make_ruleset(1, [(render_nft if backend is Backend.NFT else render_iptables)(rules)])


@pytest.mark.slow
@pytest.mark.parametrize("backend", Backend)
def test_ruleset_larger_than_a_message_is_applied(lab: Lab, tmp_path: Path, backend: Backend) -> None:
    guest = lab.namespace("web")
    ruleset = large(backend)
    size = sum(len(document.text()) for document in ruleset.documents)
    assert size > MESSAGE_BYTES
    with running(tmp_path) as daemon:
        daemon.guest("web", guest)
        daemon.start()
        (results,) = push(daemon, ["web"], ruleset)
        assert results["web"].code is ResultCode.APPLIED, results["web"].message
        assert results["web"].digest == ruleset.digest
        daemon.until(lambda: daemon.status()["web"]["state"] == "current")
        assert daemon.log().count('"ruleset applied"') == 1
