# SPDX-License-Identifier: Apache-2.0
"""Measures vn-agent beside a tuned Go reverse proxy and nginx: `python -m tests.bench.vnagent`.

README.md beside this file explains the method and the output.
"""

import argparse
import contextlib
import json
import os
import platform
import shlex
import ssl
import sys
import time
from pathlib import Path

from tests.bench import fixture
from tests.bench.figures import table
from tests.bench.measuring import ProxyBench, as_json
from tests.bench.nginx import PROGRAM, NginxPeer
from tests.bench.parts import PARTS, SLICES, Collected, rows, run_loads, run_memory
from tests.bench.programs import run_with
from tests.bench.subjects import OURS, BenchMachine, GoPeer, MeasuredProxy, VnAgent, start_upstream

FULL = {"requests": 6, "stream": 7, "exec": 7, "memory": 3}
QUICK = {"requests": 2, "stream": 3, "exec": 2, "memory": 1}
QUICK_SCALE = 0.5
# An idle machine's own housekeeping stays below this share of a core.
QUIET_SHARE = 0.03


def main() -> int:
    arguments = _arguments()
    begin = time.monotonic()
    collected = run_with(arguments.cache, lambda programs, scratch: _measure(arguments, programs, scratch))
    if collected is None:
        return 1
    made = rows(collected)
    sys.stdout.write(f"{_setting(collected)}\n\n{table(made)}\n")
    _log(f"took {time.monotonic() - begin:.0f} s")
    if arguments.json:
        arguments.json.write_text(json.dumps(_document(collected, arguments), indent=1) + "\n")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.vnagent", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="about 40 s: few and short rounds")
    parser.add_argument("--only", type=_parts, default=PARTS, metavar="PARTS", help=f"of {','.join(PARTS)}")
    parser.add_argument("--rounds", type=int, help="rounds of every part")
    parser.add_argument("--json", type=Path, metavar="FILE", help="all samples and figures")
    parser.add_argument(
        "--null", action="store_true", help="the Go peer against itself: every ratio should be 1"
    )
    parser.add_argument(
        "--whole-handshakes", action="store_true", help="no TLS session of the kubelet can be resumed"
    )
    parser.add_argument(
        "--program",
        default=f"{sys.executable} -m vnagent",
        help="the command of vn-agent: the launcher of an installed tree; default: the sources as they are",
    )
    parser.add_argument(
        "--cache", type=Path, default=Path.home() / ".cache/vcnode/bench", help="of Go builds"
    )
    return parser.parse_args()


def _parts(text: str) -> tuple[str, ...]:
    chosen = tuple(text.split(","))
    unknown = [part for part in chosen if part not in PARTS]
    if unknown:
        raise argparse.ArgumentTypeError(f"no part {', '.join(unknown)}")
    return chosen


def _measure(arguments: argparse.Namespace, programs: Path, scratch: Path) -> Collected:
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        _log("one core only: proxy and load share it, wall clock figures are meaningless")
    machine = BenchMachine(programs, scratch, proxy_core=cores[0], load_core=cores[-1])
    files = fixture.make(scratch)
    rounds = QUICK if arguments.quick else FULL
    if arguments.rounds:
        rounds = dict.fromkeys(PARTS, arguments.rounds)
    collected = Collected()
    with contextlib.ExitStack() as stack:
        flags = ["-no-tickets"] if arguments.whole_handshakes else []
        upstream, address = start_upstream(machine, files, flags)
        stack.callback(upstream.stop)
        bench = ProxyBench(machine, files, address, scale=QUICK_SCALE if arguments.quick else 1.0)
        subjects = _subjects(arguments, machine, files, address)
        loads = [part for part in SLICES if part in arguments.only]
        if loads:
            proxies = {}
            for subject in subjects:
                proxies[subject.name] = subject.start()
                stack.callback(proxies[subject.name].process.stop)
            for part in loads:
                run_loads(bench, proxies, part, rounds[part], collected, _log)
            for proxy in proxies.values():
                proxy.process.stop()
        if "memory" in arguments.only:
            run_memory(bench, subjects, rounds["memory"], collected, _log)
    return collected


def _subjects(
    arguments: argparse.Namespace, machine: BenchMachine, files: fixture.Fixture, upstream: str
) -> list[MeasuredProxy]:
    peer = GoPeer(machine, files, upstream)
    if arguments.null:
        return [GoPeer(machine, files, upstream, name=OURS), peer]
    ours = VnAgent(machine, files, upstream, shlex.split(arguments.program))
    if not PROGRAM.exists():
        _log(f"{PROGRAM} is not installed: without nginx as a second peer")
        return [ours, peer]
    return [ours, peer, NginxPeer(machine, files, upstream)]


def _log(line: str) -> None:
    sys.stderr.write(f"bench: {line}\n")
    sys.stderr.flush()


def _disturbance(collected: Collected) -> str:
    """The share of the proxy's core that other processes had: vn-agent has one thread, so it waits only for
    others. (The peer's threads also wait for each other.)"""
    ours = [sample for by in collected.load.values() for sample in by[OURS]]
    if not ours:
        return "core not watched"
    share = sum(sample.waited_s for sample in ours) / sum(sample.seconds for sample in ours)
    words = "quiet" if share < QUIET_SHARE else "DISTURBED: rates and latencies are unreliable"
    return f"vn-agent waited for its core {share:.1%} of the time: {words}"


def _setting(collected: Collected) -> str:
    ciphers = {
        f"{subject} {sample.cipher}"
        for subjects in collected.load.values()
        for subject, samples in subjects.items()
        for sample in samples
    }
    return (
        f"{platform.machine()}, {os.cpu_count()} CPUs, Linux {platform.release()}, "
        f"Python {platform.python_version()}, {ssl.OPENSSL_VERSION}\n"
        f"client leg: {', '.join(sorted(ciphers)) or 'not measured'}\n"
        f"{_disturbance(collected)}"
    )


def _document(collected: Collected, arguments: argparse.Namespace) -> dict[str, object]:
    figures, label = [], ""
    for made in rows(collected):
        label = made.figure.label.strip() or label
        figures.append(
            {
                "label": label,
                "unit": made.figure.unit,
                "ours": made.ours,
                "go": made.peer,
                "ratio": made.ratio,
                "quartiles": [made.low, made.high],
                "nginx": made.beside,
                "ratio_nginx": made.beside_ratio,
            }
        )
    return {
        "setting": _setting(collected),
        "quick": arguments.quick,
        "null": arguments.null,
        "whole_handshakes": arguments.whole_handshakes,
        "figures": figures,
        "samples": {
            name: {who: [as_json(sample) for sample in got] for who, got in subjects.items()}
            for name, subjects in collected.load.items()
        },
        "memory": {who: [as_json(sample) for sample in got] for who, got in collected.memory.items()},
    }


if __name__ == "__main__":
    sys.exit(main())
