# SPDX-License-Identifier: Apache-2.0
"""A daemon's /readyz and /status, as lines for people."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from vcnode.terminal import Style, Styled, columns, duration, indented, styled, words, wrapped

_MAX_NAMES = 12
_STYLES = {
    "NOT READY": Style.BAD,
    "PROBLEM": Style.BAD,
    "BAD TENANT": Style.BAD,
    "POD NOT SERVED": Style.BAD,
    "POD FAILS": Style.BAD,
    "POD WAITS": Style.WARNING,
    "RETAINED": Style.WARNING,
    "draining": Style.WARNING,
}


class ReportError(Exception):
    """The answer is not a daemon's status."""


class SourceFailure(msgspec.Struct):
    """`remedy` is empty in the answer of an older daemon."""

    message: str = ""
    seconds: float = 0.0
    remedy: str = ""


class RetainedTenants(msgspec.Struct, rename="camel"):
    """What vn-agent keeps though its source lacks it.

    `client_lists` are tenants without their ConfigMap vn-agent-clients.
    """

    tenants: tuple[str, ...] = ()
    seconds: float = 0.0
    client_lists: tuple[str, ...] = ()


class SourceStatus(msgspec.Struct, rename="camel"):
    """`age_seconds` is None until the source has synced."""

    age_seconds: float | None
    is_saved_state: bool = False
    failure: SourceFailure | None = None
    retained: RetainedTenants | None = None


class BadTenant(msgspec.Struct, rename="camel"):
    source: str
    tenant: str = ""
    reason: str = ""
    keeps_last_good_state: bool = False


class PodCounts(msgspec.Struct, rename="camel"):
    tenants: int = 0
    not_served: tuple[str, ...] = ()


class ServedPod(msgspec.Struct, rename="camel"):
    """A pod in dnsconfig's /status: what its containers wait for, and why it lacks its resolv.conf."""

    pod: str
    tenant: str = ""
    tenant_pod: str = ""
    wait_message: str = ""
    problem: str = ""

    @property
    def shown(self) -> str:
        return f"{self.tenant_pod} of {self.tenant}" if self.tenant_pod else self.pod


class NodeResolver(msgspec.Struct):
    problem: str = ""


class ServicesSync(msgspec.Struct, rename="camel"):
    """Where kubeproxy-ext has a tenant's Services from: synced, lastKnown, distrusted, notSynced."""

    sync_state: str = ""


class GuestSummary(msgspec.Struct, rename="camel"):
    """A guest in the /status of kata-bridge or kubeproxy-ext."""

    behind_seconds: float | None = None
    desired_generation: int | None = None

    @property
    def is_behind(self) -> bool:
        """Whether it lacks rules that it is to have: none are submitted for other pods of the node."""
        return self.behind_seconds is not None and self.desired_generation is not None


class ListenAddress(msgspec.Struct):
    address: str
    port: int


class KubeletStatus(msgspec.Struct):
    address: str
    connections: int = 0
    server: str = "kubelet"
    version: str | None = None

    @property
    def text(self) -> str:
        """One line: where requests go, and which kubelet serves them."""
        server = ", by the super API server" if self.server == "superApiserver" else ""
        version = "" if self.version is None else f", {self.version}"
        return f"{self.address}{server}{version}, connections {self.connections}"


class LogLevel(msgspec.Struct):
    """The level now, and the one to which SIGHUP and a restart return."""

    level: str = ""
    configured: str = ""

    @property
    def text(self) -> str:
        if self.level == self.configured:
            return self.level
        return f"{self.level} until SIGHUP or a restart; configured: {self.configured}"


class DaemonStatus(msgspec.Struct, rename="camel"):
    """A daemon's /status. Fields that a daemon lacks are None or empty; fields unknown here are ignored."""

    daemon: str
    node_name: str = ""
    pid: int = 0
    started_at: float | None = None
    logging: LogLevel = msgspec.field(default_factory=LogLevel)
    listen: ListenAddress | None = None
    kubelet: KubeletStatus | None = None
    sources: dict[str, SourceStatus] = {}
    tenants: tuple[str, ...] | dict[str, ServicesSync] = ()
    guests: tuple[GuestSummary, ...] | int | None = None
    problems: dict[str, str] | tuple[Any, ...] = ()
    bad_tenants: tuple[BadTenant, ...] = ()
    pods: PodCounts | tuple[ServedPod, ...] | None = None
    node_resolver: NodeResolver | None = None
    connections: int | None = None
    tunnels: int | None = None
    is_draining: bool = False


class DaemonReport(msgspec.Struct, frozen=True):
    """One daemon's answers; `why` has the lines of /readyz, `whole` all of /status as JSON values."""

    is_ready: bool
    why: tuple[str, ...]
    status: DaemonStatus
    whole: dict[str, Any]


def read(readyz: tuple[int, bytes], status_body: bytes) -> DaemonReport:
    """A report from the pages /readyz (code, body) and /status. Raises ReportError."""
    code, body = readyz
    why = tuple(line for line in body.decode("utf-8", "replace").splitlines() if line)
    try:
        status = msgspec.json.decode(status_body, type=DaemonStatus)
        whole = msgspec.json.decode(status_body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ReportError("the answer is not a daemon's status") from None
    return DaemonReport(code == 200, why, status, whole)


def unready_lines(readyz: tuple[str, ...]) -> list[str]:
    """Of `/readyz` the lines of what is not in order: each has its hop, error, since when, and what to do."""
    return [line for line in readyz if not line.partition(": ")[2].startswith("ok")] or ["no reason given"]


def render(report: DaemonReport, where: str, now_s: float, width: int | None = None) -> list[str]:
    """The lines to print, of at most `width` characters. `now_s` is in seconds since the epoch."""
    status = report.status
    on_node = f" on {status.node_name}" if status.node_name else ""
    readiness, style = ("ready", Style.GOOD) if report.is_ready else ("NOT READY", Style.BAD)
    name = f"{status.daemon}{on_node}: "
    span = (len(name), len(name) + len(readiness), style)
    head = Styled(f"{name}{readiness}  ({where})", span)
    rows = ((styled(label, _STYLES.get(label)), value) for label, value in _rows(report, now_s))
    below = columns(rows, None if width is None else width - 2)
    return [*wrapped(head, width, "    "), *map(indented, below)]


def render_silent(where: str, problem: str, width: int | None = None) -> list[str]:
    """The lines about a daemon that does not answer."""
    start = len(where) + 2
    line = f"{where}: NO ANSWER: {problem}"
    return wrapped(Styled(line, (start, start + len("NO ANSWER"), Style.BAD)), width, "    ")


def _rows(report: DaemonReport, now_s: float) -> Iterator[tuple[str, str]]:
    status = report.status
    if not report.is_ready:
        yield from (("NOT READY", line) for line in unready_lines(report.why))
    if status.started_at is not None:
        yield "running", f"{duration(now_s - status.started_at)}, pid {status.pid}"
    if status.logging.level != status.logging.configured:
        yield "log level", status.logging.text
    if status.is_draining:
        yield "draining", "it finishes open requests and accepts no new ones"
    if status.listen is not None:
        yield "listens on", _address(status.listen.address, status.listen.port)
    if status.kubelet is not None:
        yield "kubelet", status.kubelet.text
    for name, source in sorted(status.sources.items()):
        yield from _source(name, source, is_failure_shown=report.is_ready)
    if isinstance(status.tenants, dict):
        known = {name: each.sync_state for name, each in status.tenants.items()}
        yield "tenants", _names(n if k == "synced" else f"{n} ({words(k)})" for n, k in sorted(known.items()))
    elif status.listen is not None:
        yield "tenants", _names(status.tenants)
    if isinstance(status.guests, int):
        yield "guests", str(status.guests)
    elif status.guests is not None:
        behind = sum(guest.is_behind for guest in status.guests)
        yield (
            "guests",
            f"{len(status.guests)}, of these {behind} behind" if behind else f"{len(status.guests)}",
        )
    if isinstance(status.problems, dict):
        for name, problem in sorted(status.problems.items()):
            yield "PROBLEM", f"{name}: {problem}"
    elif status.problems:
        yield "ignored", f"{len(status.problems)} parts of tenants' Services: see -o yaml"
    if status.node_resolver is not None and status.node_resolver.problem:
        yield "PROBLEM", f"the node's resolv.conf: {status.node_resolver.problem}"
    for bad in status.bad_tenants:
        kept = "its last good state is served" if bad.keeps_last_good_state else "it is not served"
        name = f" (tenant {bad.tenant})" if bad.tenant else ""
        yield "BAD TENANT", f"{bad.source}{name}: {bad.reason}; {kept}"
    if isinstance(status.pods, tuple):
        yield from _served(status.pods)
    elif status.pods is not None:
        yield "pods", f"{status.pods.tenants} of tenants"
        for problem in status.pods.not_served:
            yield "POD NOT SERVED", problem
    if status.connections is not None:
        yield "connections", str(status.connections)
    if status.tunnels is not None:
        yield "tunnels", str(status.tunnels)


def _source(name: str, source: SourceStatus, *, is_failure_shown: bool) -> Iterator[tuple[str, str]]:
    if source.age_seconds is None:
        yield f"source {name}", "not synced"
    else:
        kind = "from saved state, not synced, " if source.is_saved_state else ""
        yield f"source {name}", f"{kind}age {duration(source.age_seconds)}"
    if source.failure is not None and is_failure_shown:
        since = duration(source.failure.seconds)
        yield "PROBLEM", f"{name} cannot be read for {since}: {source.failure.message}"
        if source.failure.remedy:
            yield "REMEDY", source.failure.remedy
    if source.retained is not None:
        since, retained = duration(source.retained.seconds), source.retained
        remedy = "restore them, or `vcnode tenant release`"
        if retained.tenants:
            names = _names(retained.tenants)
            yield "RETAINED", f"for {since}, missing from the source: {names}; {remedy}"
        if retained.client_lists:
            names = _names(retained.client_lists)
            yield "RETAINED", f"for {since}, missing vn-agent-clients of: {names}; {remedy}"


def _served(pods: tuple[ServedPod, ...]) -> Iterator[tuple[str, str]]:
    """How many pods dnsconfig serves, and the first of those that wait or fail."""
    waiting = sum(bool(pod.wait_message) for pod in pods)
    yield "pods", f"{len(pods)} of tenants{f', of these {waiting} waiting' if waiting else ''}"
    wrong = [pod for pod in pods if pod.wait_message or pod.problem]
    for pod in wrong[:_MAX_NAMES]:
        if pod.wait_message:
            yield "POD WAITS", f"{pod.shown}: {pod.wait_message}"
        else:
            yield "POD FAILS", f"{pod.shown}: kata-bridge cannot deliver its resolv.conf: {pod.problem}"
    if len(wrong) > _MAX_NAMES:
        yield "and", f"{len(wrong) - _MAX_NAMES} more pods: see -o yaml"


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _names(given: Iterable[str]) -> str:
    names = tuple(given)
    if not names:
        return "none"
    shown = ", ".join(names[:_MAX_NAMES])
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return f"{len(names)}: {shown}{more}"
