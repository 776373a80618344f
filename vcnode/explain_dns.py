# SPDX-License-Identifier: Apache-2.0
"""`vcnode explain dns`: a pod's resolv.conf, why it is so, and the answers of its DNS servers."""

import argparse
import ipaddress
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec

from vcnode import daemons
from vcnode.core.dns_message import BadName, RecordType, candidates, reverse_name
from vcnode.dns_query import QueryResult, ask_all
from vcnode.guests import BridgeStatus
from vcnode.terminal import Terminal, ToolError, columns, duration

_DAEMON, _BRIDGE = "dnsconfig", "kata-bridge"
# Behind `explain`.
VERB = "dns"
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


def add_to(verbs: Any) -> None:
    """Add the second word of `vcnode explain dns` to the command line of the first."""
    parser = verbs.add_parser(
        VERB,
        prog="vcnode explain dns",
        description="Print a pod's network, its DNS server, and the source of each value of its resolv.conf."
        " Exit code 0 if the pod has its resolver and waits for nothing (and with --query, the name has an"
        " answer), else 1.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "pod", metavar="POD", help="namespace/name in the tenant or the super cluster, or a guest's id"
    )
    parser.add_argument("name", metavar="NAME", nargs="?", help="a name or an address that the pod looks up")
    parser.add_argument(
        "--query", action="store_true", help="query the servers from the pod's network namespace"
    )
    parser.add_argument(
        "--type", choices=[each.name for each in RecordType], help="record type of the query (default: A)"
    )
    parser.add_argument(
        "--netns", metavar="PATH", help="the pod's network namespace (default: kata-bridge's)"
    )
    parser.add_argument(
        "--tenant", metavar="KEY", help="the pod's tenant, if several tenants have a pod of that name"
    )
    daemons.add_where(parser, daemons.DNS_STATUS, _DAEMON)
    parser.add_argument(
        "--bridge-status",
        type=Path,
        default=daemons.BRIDGE_STATUS,
        metavar="PATH",
        help=f"status socket of kata-bridge, for --query (default: {daemons.BRIDGE_STATUS})",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, terminal: Terminal) -> int:
    """Ask and print. Raises ToolError."""
    if arguments.query and not arguments.name:
        raise ToolError("--query needs a NAME")
    page = _page(arguments)
    name, type_ = _question(arguments)
    names = candidates(name, *search_of(page.text)) if name else ()
    results = _query(arguments, page, names, type_) if arguments.query else []
    is_good = (
        not page.pod.wait_message
        and page.pod.state == "applied"
        and (not arguments.query or _has_answer(results))
    )
    if arguments.json:
        terminal.json(
            {
                **msgspec.to_builtins(page),
                "names": list(names),
                "asked": [msgspec.to_builtins(each) for each in results],
            }
        )
    else:
        terminal.lines(render(page))
        terminal.lines(render_names(names, type_, results))
    return 0 if is_good else 1


def _page(arguments: argparse.Namespace) -> DnsPage:
    query = {"pod" if "/" in arguments.pod else "guest": arguments.pod}
    if arguments.tenant is not None:
        query["tenant"] = arguments.tenant
    where = daemons.address_of(arguments)
    try:
        return daemons.ask(where, f"/explain?{urlencode(query)}", DnsPage, _DAEMON)
    except daemons.ErrorResponse as error:
        hint = "; add --tenant" if "more than one" in str(error) else ""
        raise ToolError(f"{arguments.pod}: {error}{hint}") from None


def _question(arguments: argparse.Namespace) -> tuple[str, RecordType]:
    """The name and the type; an address becomes its reverse name."""
    name = arguments.name or ""
    if arguments.type is not None:
        return name, RecordType[arguments.type]
    try:
        return reverse_name(name), RecordType.PTR
    except ValueError:
        return name, RecordType.A


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


# ---- a live query


def _query(
    arguments: argparse.Namespace, page: DnsPage, names: tuple[str, ...], type_: RecordType
) -> list[QueryResult]:
    servers = servers_of(page.text)
    if not servers:
        raise ToolError(f"{page.pod.pod}: it has no DNS server")
    try:
        return ask_all(names, type_, servers, _netns(arguments, page))
    except BadName as error:
        raise ToolError(str(error)) from None
    except UnicodeError:
        raise ToolError(f"{arguments.name!r} is not a DNS name") from None


def _netns(arguments: argparse.Namespace, page: DnsPage) -> str | None:
    """The pod's network namespace on this node; None for the host's own. Raises ToolError."""
    if arguments.netns is not None:
        return str(arguments.netns)
    if page.host_network:
        return None
    try:
        status = daemons.ask(arguments.bridge_status, "/status", BridgeStatus, _BRIDGE)
    except daemons.ErrorResponse as error:
        raise ToolError(f"{_BRIDGE}: {error}; give the network namespace with --netns PATH") from None
    for guest in status.guests:
        if guest.id == page.pod.guest and guest.netns:
            return guest.netns
        if guest.id == page.pod.guest:
            raise ToolError(
                f"{page.pod.pod}: its network is inside its guest (channel {guest.channel or 'none yet'}), "
                "out of this node's reach; use `kubectl exec`"
            )
    raise ToolError(
        f"{page.pod.pod}: {_BRIDGE} has no guest of this pod; give its network namespace with --netns PATH"
    )


def _has_answer(results: list[QueryResult]) -> bool:
    return any(each.answer is not None and each.answer.records for each in results)


# ---- text


def render(page: DnsPage) -> list[str]:
    """The lines about the pod and its resolv.conf."""
    rows = list(_rows(page))
    lines = [f"{page.truncated[0]}"] if page.truncated else []
    pod = page.pod
    if page.text:
        state = "delivered to kata-bridge" if pod.state == "applied" else f"kata-bridge: {pod.state}"
        lines += ["", f"/etc/resolv.conf ({state}{f': {pod.problem}' if pod.problem else ''})"]
        lines += [f"  {line}" for line in columns(_file_rows(page))]
    elif pod.problem:
        lines.append(f"kata-bridge: {pod.state}: {pod.problem}")
    return [*columns(rows), *lines]


def _rows(page: DnsPage) -> Iterator[tuple[str, str]]:
    pod = page.pod
    own = f" (super cluster: {pod.pod})" if pod.tenant_pod and pod.tenant_pod != pod.pod else ""
    yield "pod", f"{pod.tenant_pod or pod.pod}{own}{f', tenant {pod.tenant}' if pod.tenant else ''}"
    if pod.network is not None:
        yield "network", f"{pod.network} ({page.network_from})"
    host = ", in the host's network" if page.host_network else ""
    yield "policy", f"{page.policy}{host}"
    if pod.servers:
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
