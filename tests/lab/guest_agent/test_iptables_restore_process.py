# SPDX-License-Identifier: Apache-2.0
"""The real legacy iptables-restore as a process that keeps running, alone and in an agent."""

from __future__ import annotations

import array
import fcntl
import itertools
import os
import signal
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from daemonkit.tasks import Tasks
from guest_agent.kernel import programs
from guest_agent.kernel.iptables_restore_process import IptablesRestoreProcess
from kata_bridge.channels.agent.channel import AgentChannel
from kata_bridge.channels.port import GuestRefused, GuestState, Unreachable
from ruleset.document import Document, make_ruleset
from ruleset.model import Family
from tests.lab.guest_agent.conftest import LabGuest, LabNode
from tests.lab.guest_agent.tools import LEGACY, attached, change, installed, prepared, ruleset
from tests.lab.namespaces import Lab, LabNamespace
from tests.waiting import until

_PROGRAM = "iptables-legacy-restore"


class Inside:
    """A program that runs iptables-restore in a namespace; `lock` is its lock file."""

    def __init__(self, namespace: LabNamespace, directory: Path) -> None:
        self.namespace = namespace
        self.lock = directory / "lock"
        self.path = directory / _PROGRAM
        enter = f"XTABLES_LOCKFILE={self.lock} exec nsenter --net={namespace.path}"
        self.path.write_text(f'#!/bin/sh\n{enter} {_PROGRAM} "$@"\n')
        self.path.chmod(0o755)

    def nat(self) -> list[str]:
        """Rules and chains of nat, without counters."""
        output = self.namespace.run("iptables-legacy-save", "-t", "nat")
        return [line.partition(" [")[0] for line in output.split("\n") if line[:1] in (":", "-")]


@pytest.fixture
def inside(lab: Lab, tmp_path: Path) -> Inside:
    return Inside(lab.namespace("sb"), tmp_path)


@pytest.fixture
def restore_process(inside: Inside) -> Iterator[IptablesRestoreProcess]:
    made = IptablesRestoreProcess(inside.path, lock_wait_s=1.0)
    yield made
    made.close()


def chain(rules: int, mark: str) -> str:
    lines = "".join(
        f"-A VCN-A -d 10.0.{n // 250}.{n % 250}/32 -p tcp -m tcp --dport 80 -j RETURN\n" for n in range(rules)
    )
    return f"*filter\n:{mark} - [0:0]\nCOMMIT\n*nat\n:VCN-A - [0:0]\n{lines}COMMIT\n"


def test_text_is_applied_before_the_result_returns(
    inside: Inside, restore_process: IptablesRestoreProcess
) -> None:
    pids = set()
    for number in range(1, 20):
        assert restore_process.load(chain(number, "VCN-M")).status == 0
        assert inside.nat().count("-A VCN-A -d 10.0.0.0/32 -p tcp -m tcp --dport 80 -j RETURN") == 1
        assert len([line for line in inside.nat() if line.startswith("-A VCN-A")]) == number
        pids.add(restore_process.pid)
    assert len(pids) == 1


BAD = {
    "a target that is not there": "*nat\n:VCN-A - [0:0]\n-A VCN-A -j VCN-NOWHERE\nCOMMIT\n",
    "a match that is not there": "*nat\n:VCN-A - [0:0]\n-A VCN-A -m vcnnothing -j RETURN\nCOMMIT\n",
    "no address": "*nat\n:VCN-A - [0:0]\n-A VCN-A -d 10.0.0.x/32 -j RETURN\nCOMMIT\n",
    "an option that is not there": "*nat\n:VCN-A - [0:0]\n-A VCN-A --nothing -j RETURN\nCOMMIT\n",
    "a rule that is not there": "*nat\n-D OUTPUT -d 192.0.2.9/32 -j ACCEPT\nCOMMIT\n",
    "a chain that is in use": "*nat\n-X VCN-A\nCOMMIT\n",
    "a loop": "*nat\n:VCN-L - [0:0]\n-A VCN-L -j VCN-L\n-A OUTPUT -j VCN-L\nCOMMIT\n",
    "a target of another table": "*filter\n-A OUTPUT -j DNAT --to-destination 10.0.0.1\nCOMMIT\n",
    "the second table": "*filter\n:VCN-B - [0:0]\nCOMMIT\n*nat\n-A OUTPUT -j VCN-NOWHERE\nCOMMIT\n",
    "a table that is not there": "*vcn\nCOMMIT\n",
    "no table": "-A OUTPUT -j RETURN\n",
    "no end": "*nat\n:VCN-B - [0:0]\n",
}


@pytest.mark.parametrize("text", list(BAD.values()), ids=list(BAD))
def test_errors_equal_those_of_a_fresh_program(
    inside: Inside, restore_process: IptablesRestoreProcess, text: str
) -> None:
    assert restore_process.load(chain(3, "VCN-M") * 4).status == 0
    assert restore_process.load("*nat\n-A OUTPUT -j VCN-A\nCOMMIT\n").status == 0
    before = inside.nat()
    ended = restore_process.load(text)
    assert ended.status
    assert restore_process.pid is None
    assert inside.nat() == before
    assert ended == programs.run(inside.path, "--noflush", "-w", "5", stdin=text)
    assert restore_process.load(chain(4, "VCN-M")).status == 0
    assert len(inside.nat()) == len(before) + 1


def test_a_held_lock_is_reported(inside: Inside, restore_process: IptablesRestoreProcess) -> None:
    assert restore_process.load(chain(1, "VCN-M")).status == 0
    with inside.lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        ended = restore_process.load(chain(2, "VCN-M"))
        assert ended.status == 4
        assert ended.errors.startswith("Another app is currently holding the xtables lock")
    assert len([line for line in inside.nat() if line.startswith("-A VCN-A")]) == 1
    assert restore_process.load(chain(3, "VCN-M")).status == 0


def test_the_lock_is_free_between_scripts(inside: Inside, restore_process: IptablesRestoreProcess) -> None:
    for _ in range(3):
        assert restore_process.load(chain(1, "VCN-M")).status == 0
        with inside.lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_the_process_does_not_grow(restore_process: IptablesRestoreProcess) -> None:
    def resident_kb() -> int:
        status = Path(f"/proc/{restore_process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.split("\n") if line.startswith("RssAnon"))

    texts = [chain(100, f"VCN-M{number % 2}") for number in range(400)]
    for text in texts[:50]:
        assert restore_process.load(text).status == 0
    before = resident_kb()
    for text in texts[50:]:
        assert restore_process.load(text).status == 0
    # 350 times 100 rules: a byte of each would be 34 kB.
    assert resident_kb() - before <= 16


def child_pids(guest: LabGuest) -> list[int]:
    """An agent's child processes."""
    assert guest.agent is not None
    tasks = Path(f"/proc/{guest.agent.pid}/task").iterdir()
    return [int(word) for task in tasks for word in (task / "children").read_text().split()]


def is_gone(pid: int) -> bool:
    """Whether a process has ended, collected or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z")
    except OSError:
        return True


@pytest.mark.asyncio
async def test_an_agent_keeps_one_process_for_each_family(node: LabNode) -> None:
    guest = prepared(node.guest("sb"), LEGACY)
    channel = await attached(node, guest, "sb")
    assert child_pids(guest) == []
    both = (Family.IPV4, Family.IPV6)
    sets = [ruleset(LEGACY, number, number, *both) for number in range(1, 10)]
    await channel.apply(sets[0], [])
    pids = child_pids(guest)
    assert len(pids) == 2
    for old, new in itertools.pairwise(sets):
        assert await channel.apply(change(old, new), []) == GuestState(new.generation, new.digest, False)
    assert await channel.read_back() == sets[-1].documents
    assert child_pids(guest) == pids
    guest.stop()
    await until(lambda: all(is_gone(pid) for pid in pids))


FIRST, SECOND = ruleset(LEGACY, 1, 1), ruleset(LEGACY, 2, 2)


async def agent_with_process(node: LabNode) -> tuple[AgentChannel, int]:
    """An agent that has applied `FIRST`, and its iptables-restore."""
    guest = prepared(node.guest("sb"), LEGACY)
    channel = await attached(node, guest, "sb")
    await channel.apply(FIRST, [])
    (pid,) = child_pids(guest)
    return channel, pid


@pytest.mark.asyncio
async def test_a_process_killed_while_idle_is_replaced(node: LabNode) -> None:
    channel, pid = await agent_with_process(node)
    os.kill(pid, signal.SIGKILL)
    await until(lambda: is_gone(pid))
    assert await channel.apply(change(FIRST, SECOND), []) == GuestState(2, SECOND.digest, False)
    assert await channel.read_back() == SECOND.documents


@pytest.mark.asyncio
async def test_a_process_killed_during_an_apply_rolls_back(node: LabNode) -> None:
    channel, pid = await agent_with_process(node)
    os.kill(pid, signal.SIGSTOP)
    applying = Tasks("test").spawn(channel.apply(change(FIRST, SECOND), []), "applying")
    # The script waits in its stdin.
    await until(lambda: _unread(pid) > 0)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(Unreachable, match="iptables-legacy-restore: ended with status -9"):
        await applying
    assert await channel.state() == GuestState(1, FIRST.digest, False)
    assert await channel.apply(change(FIRST, SECOND), []) == GuestState(2, SECOND.digest, False)
    assert await channel.read_back() == SECOND.documents


@pytest.mark.asyncio
async def test_refusal_keeps_the_installed_rules(node: LabNode) -> None:
    guest = prepared(node.guest("sb"), LEGACY)
    channel = await attached(node, guest, "sb")
    sets = [ruleset(LEGACY, number, number) for number in (1, 2, 3)]
    await channel.apply(sets[0], [])
    await channel.apply(change(sets[0], sets[1]), [])
    (document,) = sets[1].documents
    rules = (*document.objects["nat/VCN-SERVICES"], "-d 10.96.0.9/32 -j VCN-SVC-NOWHERE")
    bad = make_ruleset(
        9, [Document(Family.IPV4, document.backend, {**document.objects, "nat/VCN-SERVICES": rules})]
    )
    before = installed(guest.namespace, LEGACY).count("\n")
    with pytest.raises(
        GuestRefused, match=r"line \d+ is '-A VCN-SERVICES -d 10\.96\.0\.9/32 -j VCN-SVC-NOWHERE'"
    ):
        await channel.apply(bad, [])
    assert installed(guest.namespace, LEGACY).count("\n") == before
    assert await channel.apply(change(sets[1], sets[2]), []) == GuestState(3, sets[2].digest, False)


def _unread(pid: int) -> int:
    """How many bytes wait in a process' stdin."""
    with Path(f"/proc/{pid}/fd/0").open("rb") as pipe:
        count = array.array("i", [0])
        fcntl.ioctl(pipe, termios.FIONREAD, count)
    return count[0]
