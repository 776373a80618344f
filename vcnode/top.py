# SPDX-License-Identifier: Apache-2.0
"""`vcnode top`: what daemons and tenants of this node use, again and again."""

import argparse
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import msgspec

from daemonkit.status.server import ListenAddress, StatusError, fetch
from vcnode import daemons
from vcnode.core.guests_report import BridgeStatus
from vcnode.core.top_report import (
    DaemonReading,
    NodeReading,
    ProcessUsage,
    TenantCounters,
    as_json,
    compare,
    render,
    tenant_counters,
)
from vcnode.output import add_output
from vcnode.terminal import Terminal, exit_code

_AGENT, _BRIDGE = "vn-agent", "kata-bridge"
_INTERVAL_S = 2.0
_MIN_INTERVAL_S, _MAX_INTERVAL_S = 0.1, 3600.0
# A process that is younger or older than its page says is of another PID namespace: a pod's.
_START_TOLERANCE_S = 60.0


def add_to(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser = verbs.add_parser(
        "top",
        help="CPU, memory and traffic of this node's daemons and tenants, live",
        description="Compare two readings of the daemons' pages, and of their processes. On a terminal this"
        " repeats until it is interrupted; elsewhere it prints one result. CPU and memory need psutil;"
        " traffic is that of vn-agent. Exit code 0 if all daemons are ready, 1 if one is not, 3 if one does"
        " not answer.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--interval",
        type=_interval,
        default=_INTERVAL_S,
        metavar="SECONDS",
        help=f"time between two readings (default: {_INTERVAL_S:g})",
    )
    parser.add_argument("--count", type=_count, metavar="N", help="end after so many results")
    daemons.add_addresses(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def _interval(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not _MIN_INTERVAL_S <= seconds <= _MAX_INTERVAL_S:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no number of seconds from {_MIN_INTERVAL_S} to {_MAX_INTERVAL_S:.0f}"
        )
    return seconds


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 1_000_000):
        raise argparse.ArgumentTypeError(f"{text!r} is no positive number")
    return int(text)


def run(arguments: argparse.Namespace, terminal: Terminal) -> int:
    """Read and print until the count is reached, or until an interrupt. Raises ToolError."""
    left = arguments.count or (None if terminal.can_redraw and not terminal.is_document else 1)
    verdict: bool | None = None
    addresses = daemons.addresses_of(arguments)
    before = read(addresses)
    try:
        while left is None or left > 0:
            time.sleep(arguments.interval)
            after = read(addresses)
            use = compare(before, after)
            verdict = use.verdict
            if terminal.is_document:
                terminal.document("NodeUse", as_json(use))
            else:
                terminal.redraw(render(use, terminal.room, is_wide=terminal.is_wide))
            before = after
            left = None if left is None else left - 1
    except KeyboardInterrupt:
        if verdict is None:
            raise
    return exit_code(verdict)


def read(addresses: Sequence[ListenAddress]) -> NodeReading:
    """All pages, side by side, and the processes of the daemons that answer."""
    with ThreadPoolExecutor(len(addresses)) as pool:
        asked = list(pool.map(_ask, addresses))
    bridges = (each.bridge for each in asked if each.bridge is not None)
    agents = (each.counters for each in asked if each.counters is not None)
    daemons_read = tuple(each.daemon for each in asked)
    return NodeReading(time.monotonic(), time.time(), daemons_read, next(agents, None), next(bridges, None))


@dataclass(frozen=True, slots=True)
class _Answer:
    """Of one daemon."""

    daemon: DaemonReading
    counters: Mapping[str, TenantCounters] | None = None
    bridge: BridgeStatus | None = None


def _ask(where: ListenAddress) -> _Answer:
    report = daemons.ask_report(where)
    if isinstance(report, str):
        return _Answer(DaemonReading(daemons.name_of(where), problem=report))
    status = report.status
    usage = _usage(status.pid, status.started_at)
    reading = DaemonReading(status.daemon, report.is_ready, status.started_at, usage)
    if status.daemon == _AGENT:
        return _Answer(reading, counters=_counters(where))
    if status.daemon == _BRIDGE:
        try:
            return _Answer(reading, bridge=msgspec.convert(report.whole, BridgeStatus))
        except msgspec.ValidationError:  # another version's: its guests are unknown
            return _Answer(reading)
    return _Answer(reading)


def _counters(where: ListenAddress) -> dict[str, TenantCounters] | None:
    """vn-agent's counters of each tenant; None if its page cannot be had."""
    # Not loaded by other verbs.
    from prometheus_client.parser import text_string_to_metric_families

    try:
        code, body = fetch(where, "/metrics", daemons.TIMEOUT_S)
        families = text_string_to_metric_families(body.decode()) if code == HTTPStatus.OK else ()
        samples = [
            (sample.name, sample.labels, sample.value) for family in families for sample in family.samples
        ]
    except (OSError, StatusError, ValueError):
        return None
    return tenant_counters(samples) if samples else None


def _usage(pid: int, started_at: float | None) -> ProcessUsage | None:
    """Of the daemon's process; None if it is not one of this PID namespace, or psutil is not installed."""
    try:
        import psutil
    except ModuleNotFoundError:
        return None
    try:
        process = psutil.Process(pid)
        if started_at is None or abs(process.create_time() - started_at) > _START_TOLERANCE_S:
            return None
        times = process.cpu_times()
        resident = process.memory_info().rss
    except (psutil.Error, ValueError):
        return None
    try:
        files = process.num_fds()
    except psutil.Error:  # another user's
        files = None
    return ProcessUsage(times.user + times.system, resident, files)
