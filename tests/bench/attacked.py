# SPDX-License-Identifier: Apache-2.0
"""What the benches of attacks share: a tenant's attacker in a process, and the loads of its neighbour."""

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench.fixture import CONTAINER, NAMESPACE, NODE, PODS, Fixture
from tests.bench.processes import Process
from tests.bench.subjects import BenchMachine


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


def measure_neighbour(
    machine: BenchMachine, files: Fixture, address: str, loads: Mapping[str, NeighbourLoad], seconds: float
) -> dict[str, NeighbourLatency]:
    """The latencies of all loads at once, by the kind. Raises RunError where the neighbour is not served."""
    with contextlib.ExitStack() as stack:
        running = {}
        for number, (kind, load) in enumerate(loads.items()):
            targets = machine.directory / f"neighbour-targets-{number}"
            targets.write_text("\n".join(load.targets))
            running[kind] = Process(
                f"neighbour, {kind}",
                [
                    machine.programs / "load",
                    *(*load.flags, "-address", address, "-server-name", NODE),
                    *("-cert", files.neighbour.certificate, "-key", files.neighbour.key),
                    *("-ca", files.serving_ca, "-targets", targets, "-duration", f"{seconds:.1f}s"),
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


@contextlib.contextmanager
def attacking(
    machine: BenchMachine, files: Fixture, address: str, program: str, name: str, counted: dict[str, int]
) -> Iterator[None]:
    """The attack `name` of the module `program` is under way; its counts are added to `counted`."""
    attacker = Process(
        name,
        [
            # Attackers have machines of their own. A process of the idle policy yields the core at
            # once; one of a low priority keeps it for some milliseconds.
            *("chrt", "--idle", "0", sys.executable, "-m", program, name),
            *_target_flags(files, address),
        ],
        machine.load_core,
        machine.directory / f"attacker-{name}.log",
    )
    try:
        attacker.read_line()
        yield
        attacker.close_input()
        for what, count in json.loads(attacker.read_line()).items():
            counted[what] = counted.get(what, 0) + count
    finally:
        attacker.stop()


def _target_flags(files: Fixture, address: str) -> Sequence[str | Path]:
    return [
        *("--address", address, "--server-name", NODE, "--ca", files.serving_ca),
        *("--certificate", files.caller.certificate, "--key", files.caller.key),
        *("--log-path", f"/containerLogs/{NAMESPACE}/{PODS[0]}/{CONTAINER}"),
        *("--chains", str(files.directory)),
    ]
