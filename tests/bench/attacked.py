# SPDX-License-Identifier: Apache-2.0
"""What the benches of attacks share: an attacked vn-agent, a slice of an attack, its neighbour's loads."""

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench import usage
from tests.bench.fixture import CONTAINER, NAMESPACE, NODE, PODS, Fixture
from tests.bench.processes import Process, RunError
from tests.bench.subjects import BenchMachine, RunningProxy, VnAgent
from tests.k8s.ring.certs import CertificateFiles


@dataclass(frozen=True, slots=True)
class NeighbourLatency:
    """The neighbour's latencies in one slice."""

    p50_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True)
class NeighbourLoad:
    """One kind of load: arguments of the program `load`, and the request targets."""

    flags: tuple[str, ...]
    targets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LoadTarget:
    """A server of the neighbour's load, and the credential there."""

    address: str
    authority: Path
    client: CertificateFiles


Latencies = dict[str, NeighbourLatency]


@dataclass(frozen=True, slots=True)
class AttackedSlice:
    """One slice under attack, and what vn-agent used in it.

    `problem` has the reason where the neighbour was not served; there are no latencies then. `counted` has
    the attacker's counts.
    """

    latencies: Latencies
    problem: str
    cpu_share: float
    rss_mb: float
    counted: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class AttackedAgent:
    """A vn-agent with the default limits of a tenant, and the attacks of the module `program` on it."""

    machine: BenchMachine
    files: Fixture
    running: RunningProxy
    program: str

    @classmethod
    @contextlib.contextmanager
    def started(
        cls, machine: BenchMachine, files: Fixture, upstream: str, command: Sequence[str], program: str
    ) -> "Iterator[AttackedAgent]":
        """A fresh one until the end of the block. Raises RunError."""
        running = VnAgent(machine, files, upstream, command, has_limits=True).start()
        try:
            # As on a node: its other threads need not share the event loop's core.
            os.sched_setaffinity(running.process.pid, {machine.proxy_core, machine.load_core})
            yield cls(machine, files, running, program)
        finally:
            running.process.stop()

    @property
    def target(self) -> LoadTarget:
        """vn-agent, for the neighbour."""
        return LoadTarget(self.running.address, self.files.serving_ca, self.files.neighbour)

    def under_attack(self, name: str, measure: Callable[[], Latencies]) -> AttackedSlice:
        """Measure while the attack `name` is under way, and return once vn-agent has ended its connections:
        the next slice would contain that work. Raises RunError where the attack does not begin."""
        process, latencies, problem = self.running.process, Latencies(), ""
        with self._attack(name) as counted:
            cpu_s, begin_s = process.cpu_s(), time.monotonic()
            try:
                latencies = measure()
            except RunError as error:
                problem = str(error).splitlines()[-1]
            cpu_share = (process.cpu_s() - cpu_s) / (time.monotonic() - begin_s)
            rss_mb = usage.memory(process.pid).rss_mb
        process.settled_cpu_s()
        return AttackedSlice(latencies, problem, cpu_share, rss_mb, counted)

    @contextlib.contextmanager
    def _attack(self, name: str) -> Iterator[dict[str, int]]:
        """Yields the attacker's counts, which are complete behind the block."""
        files, counted = self.files, dict[str, int]()
        attacker = Process(
            name,
            [
                # Attackers have machines of their own. A process of the idle policy yields the core at
                # once; one of a low priority keeps it for some milliseconds.
                *("chrt", "--idle", "0", sys.executable, "-m", self.program, name),
                *("--address", self.running.address, "--server-name", NODE, "--ca", files.serving_ca),
                *("--certificate", files.caller.certificate, "--key", files.caller.key),
                *("--log-path", f"/containerLogs/{NAMESPACE}/{PODS[0]}/{CONTAINER}"),
                *("--chains", str(files.directory)),
            ],
            self.machine.load_core,
            self.machine.directory / f"attacker-{name}.log",
        )
        try:
            attacker.read_line()
            yield counted
            attacker.close_input()
            counted.update(json.loads(attacker.read_line()))
        finally:
            attacker.stop()


def measure_neighbour(
    machine: BenchMachine, loads: Mapping[str, tuple[LoadTarget, NeighbourLoad]], seconds: float
) -> Latencies:
    """The latencies of all loads at once, by the kind. Raises RunError where the neighbour is not served."""
    with contextlib.ExitStack() as stack:
        running = {}
        for number, (kind, (target, load)) in enumerate(loads.items()):
            targets = machine.directory / f"neighbour-targets-{number}"
            targets.write_text("\n".join(load.targets))
            running[kind] = Process(
                f"neighbour, {kind}",
                [
                    machine.programs / "load",
                    *(*load.flags, "-address", target.address, "-server-name", NODE),
                    *("-cert", target.client.certificate, "-key", target.client.key),
                    *("-ca", target.authority, "-targets", targets, "-duration", f"{seconds:.1f}s"),
                ],
                machine.load_core,
                machine.directory / f"neighbour-{number}.log",
            )
            stack.callback(running[kind].stop)
        for process in running.values():
            process.read_line()
        for process in running.values():
            process.write_line("go")
        found = {}
        for kind, process in running.items():
            reply = json.loads(process.read_line())
            process.finish()
            found[kind] = NeighbourLatency(reply["p50_us"] / 1e3, reply["p99_us"] / 1e3)
        return found
