# SPDX-License-Identifier: Apache-2.0
"""What daemons and tenants of this node use, from two readings of their pages."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from vcnode.core.guests_report import BridgeStatus
from vcnode.terminal import Style, duration, styled, table

# More rows would not fit on a screen; `-o wide` has all.
MAX_TENANTS = 20
_REQUESTS = "vcnode_vnagent_requests_total"
_SENT_BYTES = "vcnode_vnagent_sent_bytes_total"
_STATES = {True: ("ready", Style.GOOD), False: ("NOT READY", Style.BAD), None: ("SILENT", Style.BAD)}
_UNITS = ("B", "kB", "MB", "GB", "TB")


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """Of one process: CPU since its start in seconds; None where the kernel hides it."""

    cpu_s: float
    resident_bytes: int
    open_files: int | None = None


@dataclass(frozen=True, slots=True)
class DaemonReading:
    """`started_at` is in seconds since 1970. A daemon that does not answer has a `problem` alone."""

    daemon: str
    is_ready: bool | None = None
    started_at: float | None = None
    usage: ProcessUsage | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class TenantCounters:
    """vn-agent's counters of one tenant: requests, those that were refused or failed, and bytes sent."""

    requests: float = 0.0
    failed: float = 0.0
    sent_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class NodeReading:
    """All pages at one time.

    `at_s` is of a monotonic clock, `now_s` in seconds since 1970. `counters` is None where vn-agent
    has no page, `bridge` where kata-bridge has none.
    """

    at_s: float
    now_s: float
    daemons: tuple[DaemonReading, ...] = ()
    counters: Mapping[str, TenantCounters] | None = None
    bridge: BridgeStatus | None = None


@dataclass(frozen=True, slots=True)
class DaemonRow:
    """CPU is in cores, None where it is unknown."""

    reading: DaemonReading
    cores: float | None = None
    up_s: float | None = None


@dataclass(slots=True)
class TenantRow:
    """Rates are per second, None without vn-agent; guests are None without kata-bridge."""

    tenant: str
    requests: float | None = None
    failed: float | None = None
    sent_bytes: float | None = None
    guests: int | None = None
    behind: int | None = None
    blocked: int | None = None


@dataclass(frozen=True, slots=True)
class NodeUse:
    """Of the time between two readings, in seconds. Tenants with most traffic come first."""

    seconds: float
    daemons: tuple[DaemonRow, ...]
    tenants: tuple[TenantRow, ...] = ()

    @property
    def verdict(self) -> bool | None:
        """Whether all daemons are ready; None if one does not answer."""
        states = {row.reading.is_ready for row in self.daemons}
        return None if None in states else False not in states


def tenant_counters(samples: Iterable[tuple[str, Mapping[str, str], float]]) -> dict[str, TenantCounters]:
    """By tenant, from the samples (name, labels, value) of vn-agent's page."""
    found: dict[str, TenantCounters] = {}
    for name, labels, value in samples:
        if name not in (_REQUESTS, _SENT_BYTES):
            continue
        tenant = labels.get("tenant", "")
        known = found.get(tenant, TenantCounters())
        if name == _SENT_BYTES:
            found[tenant] = TenantCounters(known.requests, known.failed, known.sent_bytes + value)
        else:
            failed = value if labels.get("code", "") >= "400" else 0.0
            found[tenant] = TenantCounters(known.requests + value, known.failed + failed, known.sent_bytes)
    return found


def compare(before: NodeReading, after: NodeReading) -> NodeUse:
    """What was used between two readings; `before` is the earlier one."""
    seconds = max(after.at_s - before.at_s, 1e-3)
    earlier = {each.daemon: each for each in before.daemons}
    daemons = tuple(
        DaemonRow(
            each,
            _cores(earlier.get(each.daemon), each, seconds),
            None if each.started_at is None else after.now_s - each.started_at,
        )
        for each in after.daemons
    )
    return NodeUse(seconds, daemons, _tenants(before, after, seconds))


def _cores(before: DaemonReading | None, after: DaemonReading, seconds: float) -> float | None:
    if after.usage is None or before is None or before.usage is None:
        return None
    if before.started_at != after.started_at:
        # Another process, which has counted from nothing.
        return after.usage.cpu_s / seconds
    return max(0.0, after.usage.cpu_s - before.usage.cpu_s) / seconds


def _tenants(before: NodeReading, after: NodeReading, seconds: float) -> tuple[TenantRow, ...]:
    rows: dict[str, TenantRow] = {}
    if after.counters is not None:
        for tenant, counters in after.counters.items():
            row = rows.setdefault(tenant, TenantRow(tenant))
            if before.counters is not None:
                known = before.counters.get(tenant, TenantCounters())
                row.requests = _increase(known.requests, counters.requests) / seconds
                row.failed = _increase(known.failed, counters.failed) / seconds
                row.sent_bytes = _increase(known.sent_bytes, counters.sent_bytes) / seconds
    if after.bridge is not None:
        _add_guests(rows, after.bridge)
    return tuple(
        sorted(rows.values(), key=lambda row: (-(row.sent_bytes or 0), -(row.requests or 0), row.tenant))
    )


def _increase(before: float, after: float) -> float:
    """A counter that fell has begun anew, as Prometheus' `rate` takes it."""
    return after - before if after >= before else after


def _add_guests(rows: dict[str, TenantRow], bridge: BridgeStatus) -> None:
    blocked = bridge.start_gate.blocked if bridge.start_gate else ()
    for tenant in {each.tenant for each in bridge.guests} | {each.tenant for each in blocked}:
        rows.setdefault(tenant, TenantRow(tenant))
    for tenant, row in rows.items():
        guests = [each for each in bridge.guests if each.tenant == tenant]
        row.guests = len(guests)
        row.behind = sum(each.state not in ("current", "noRuleset") for each in guests)
        row.blocked = sum(each.tenant == tenant for each in blocked)


def render(use: NodeUse, width: int | None = None, *, is_wide: bool = False) -> list[str]:
    """The lines to print, of at most `width` characters."""
    lines = table(
        [("DAEMON", "STATE", "CPU", "MEMORY", "FILES", "UP"), *map(_daemon_row, use.daemons)], width
    )
    shown = use.tenants if is_wide else use.tenants[:MAX_TENANTS]
    if shown:
        head = ("TENANT", "REQ/s", "FAILED/s", "SENT/s", "GUESTS", "BEHIND", "BLOCKED")
        lines += ["", *table([head, *map(_tenant_row, shown)], width)]
    if len(shown) < len(use.tenants):
        lines.append(f"{len(use.tenants) - len(shown)} more tenants with less traffic: -o wide")
    return lines


def _daemon_row(row: DaemonRow) -> tuple[str, ...]:
    reading = row.reading
    state = styled(*_STATES[reading.is_ready])
    if reading.problem:
        return (reading.daemon, state, "-", "-", "-", reading.problem)
    usage = reading.usage
    return (
        reading.daemon,
        state,
        "-" if row.cores is None else f"{row.cores * 100:.1f} %",
        "-" if usage is None else _bytes(usage.resident_bytes),
        "-" if usage is None or usage.open_files is None else str(usage.open_files),
        "-" if row.up_s is None else duration(row.up_s),
    )


def _tenant_row(row: TenantRow) -> tuple[str, ...]:
    return (
        row.tenant or "-",
        _rate(row.requests),
        styled(_rate(row.failed), Style.WARNING if row.failed else None),
        "-" if row.sent_bytes is None else _bytes(row.sent_bytes),
        "-" if row.guests is None else str(row.guests),
        styled("-" if row.behind is None else str(row.behind), Style.WARNING if row.behind else None),
        styled("-" if row.blocked is None else str(row.blocked), Style.BAD if row.blocked else None),
    )


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _bytes(value: float) -> str:
    """In the largest unit of 1000 that leaves a digit before the point: `23.4 MB`."""
    unit = 0
    while value >= 1000 and unit < len(_UNITS) - 1:
        value /= 1000
        unit += 1
    return f"{value:.0f} {_UNITS[unit]}" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"


def as_json(use: NodeUse) -> dict[str, Any]:
    """A document: times in seconds, rates per second, CPU in cores, null for what is unknown."""
    return {
        "seconds": use.seconds,
        "daemons": [
            {
                "daemon": row.reading.daemon,
                "isReady": row.reading.is_ready,
                "problem": row.reading.problem,
                "cpuCores": row.cores,
                "residentBytes": row.reading.usage.resident_bytes if row.reading.usage else None,
                "openFiles": row.reading.usage.open_files if row.reading.usage else None,
                "upSeconds": row.up_s,
            }
            for row in use.daemons
        ],
        "tenants": [
            {
                "tenant": row.tenant,
                "requestsPerSecond": row.requests,
                "failedPerSecond": row.failed,
                "sentBytesPerSecond": row.sent_bytes,
                "guests": row.guests,
                "behindGuests": row.behind,
                "blockedPods": row.blocked,
            }
            for row in use.tenants
        ],
    }
