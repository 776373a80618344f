# SPDX-License-Identifier: Apache-2.0
"""A pod's resolv.conf with the source of each value, and the results of queries, as lines for people."""

import ipaddress
from collections.abc import Iterator
from itertools import groupby

import msgspec

from vcnode.core.dns_message import QueryResult, RecordType
from vcnode.terminal import columns, duration

# glibc's and musl's default.
_NDOTS = 1


class SourcedValue(msgspec.Struct):
    value: str
    source: str


class FileLine(msgspec.Struct):
    """A line of a resolv.conf, with the source of each value."""

    keyword: str
    values: tuple[SourcedValue, ...]


class ResolverPod(msgspec.Struct, rename="camel"):
    """A pod in dnsconfig's /status and /explain."""

    pod: str
    uid: str
    guest: str = ""
    tenant: str = ""
    tenant_pod: str = ""
    network: str | None = None
    servers: tuple[str, ...] = ()
    wait_message: str = ""
    wait_seconds: float | None = None
    retained_because: str = ""
    is_server_removed: bool = False
    server_removed_in_seconds: float | None = None
    state: str = ""
    problem: str = ""


class DnsPage(msgspec.Struct, rename="camel"):
    """dnsconfig's /explain."""

    pod: ResolverPod
    policy: str
    host_network: bool = False
    network_from: str = ""
    server_from: str = ""
    domain: str = ""
    domain_from: str = ""
    record: str = ""
    message: str = ""
    text: str = ""
    lines: tuple[FileLine, ...] = ()
    truncated: tuple[str, ...] = ()


def search_of(text: str) -> tuple[tuple[str, ...], int]:
    """The search list and ndots of a resolv.conf, as a C library reads it."""
    searches: tuple[str, ...] = ()
    ndots = _NDOTS
    for line in text.splitlines():
        keyword, *values = line.split() or [""]
        if keyword == "search":
            searches = tuple(values)
        elif keyword == "options":
            found = [value[6:] for value in values if value.startswith("ndots:")]
            # resolv.conf(5): silently capped to 15. A pod's author may write a number of any length.
            ndots = min(int(found[-1][:20]), 15) if found and found[-1].isdecimal() else ndots
    return searches, ndots


def servers_of(text: str) -> tuple[str, ...]:
    """The servers of a resolv.conf, as a C library reads it: names are ignored."""
    lines = (line.split() for line in text.splitlines())
    return tuple(line[1] for line in lines if line[:1] == ["nameserver"] and _is_address(line[1:2]))


def _is_address(values: list[str]) -> bool:
    try:
        ipaddress.ip_address("".join(values))
    except ValueError:
        return False
    return True


def render(page: DnsPage, width: int | None = None) -> list[str]:
    """The lines about the pod and its resolv.conf, of at most `width` characters but for the file's own."""
    rows = list(_rows(page))
    lines = [f"{page.truncated[0]}"] if page.truncated else []
    pod = page.pod
    if page.text:
        state = "delivered to kata-bridge" if pod.state == "applied" else f"kata-bridge: {pod.state}"
        lines += ["", f"/etc/resolv.conf ({state}{f': {pod.problem}' if pod.problem else ''})"]
        lines += _file_lines(list(_file_rows(page)), width)
    elif pod.problem:
        lines.append(f"kata-bridge: {pod.state}: {pod.problem}")
    return [*columns(rows, width), *lines]


def _rows(page: DnsPage) -> Iterator[tuple[str, str]]:
    pod = page.pod
    own = f" (super cluster: {pod.pod})" if pod.tenant_pod and pod.tenant_pod != pod.pod else ""
    yield "pod", f"{pod.tenant_pod or pod.pod}{own}{f', tenant {pod.tenant}' if pod.tenant else ''}"
    if pod.network is not None:
        yield "network", f"{pod.network} ({page.network_from})"
    host = ", in the host's network" if page.host_network else ""
    yield "policy", f"{page.policy}{host}"
    retained = servers_of(page.text) if pod.retained_because else ()
    if retained:
        yield "server", f"{' '.join(retained)} (of its previous resolver)"
    elif pod.servers:
        yield "server", f"{' '.join(pod.servers)} ({page.server_from})"
    if page.domain:
        yield "domain", f"{page.domain} ({page.domain_from})"
    if page.record:
        yield "record", f"{page.record}, by its headless Service"
    if pod.wait_message:
        since = "" if pod.wait_seconds is None else f" (for {duration(pod.wait_seconds)})"
        yield "waits", f"{pod.wait_message}{since}"
    if pod.retained_because:
        yield "retains", f"its previous resolver: {pod.retained_because}"
    yield from _revoked_row(pod)


def _revoked_row(pod: ResolverPod) -> Iterator[tuple[str, str]]:
    if pod.is_server_removed:
        removal = "was removed"
    elif pod.server_removed_in_seconds is not None:
        removal = f"is removed in {duration(pod.server_removed_in_seconds)}"
    else:
        return
    yield "revoked", f"its network's Service gave up the server's address, which {removal}"


def _file_lines(rows: list[tuple[str, str]], width: int | None) -> list[str]:
    """The file's lines with their sources behind them, or below them where they do not fit."""
    lines = [f"  {line}" for line in columns(rows)]
    if width is None or max(map(len, lines), default=0) <= width:
        return lines
    return [line for text, source in rows for line in (f"  {text}", f"      {source}") if line.strip()]


def _file_rows(page: DnsPage) -> Iterator[tuple[str, str]]:
    """The file's lines; a line with several sources takes several rows."""
    if page.pod.retained_because or not page.lines:
        for line in page.text.splitlines():
            yield line, "" if page.lines else "<- retained"
        return
    for each in page.lines:
        keyword = each.keyword
        for source, values in groupby(each.values, key=lambda value: value.source):
            yield f"{keyword} {' '.join(value.value for value in values)}", f"<- {source}"
            keyword = " " * len(keyword)


def render_names(names: tuple[str, ...], type_: RecordType, results: list[QueryResult]) -> Iterator[str]:
    if not names:
        return
    yield ""
    if not results:
        yield f"the pod looks up {type_.name} records in this order:"
        yield from (f"  {name}" for name in names)
        return
    rows = []
    for each in results:
        result = each.problem if each.answer is None else each.answer.code
        if each.answer is not None and not each.answer.records and result == "NOERROR":
            result = "no such record"
        rows.append((f"{each.name} {type_.name}", f"@{each.server}", f"{each.seconds * 1000:.0f} ms", result))
    yield from columns(rows)
    answer = results[-1].answer
    for record in () if answer is None else answer.records:
        kind = RecordType(record.type).name if record.type in set(RecordType) else f"TYPE{record.type}"
        yield f"  {record.name} {record.ttl_s} s {kind} {record.value}"
