# SPDX-License-Identifier: Apache-2.0
"""`vcnode explain dns`: a pod's resolv.conf, why it is so, and the answers of its DNS servers."""

import argparse
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec

from vcnode import daemons
from vcnode.core.dns_message import BadName, QueryResult, RecordType, candidates, reverse_name
from vcnode.core.explain_dns_report import DnsPage, render, render_names, search_of, servers_of
from vcnode.core.guests_report import BridgeStatus
from vcnode.dns_query import ask_all
from vcnode.output import add_output
from vcnode.terminal import EXIT_NEGATIVE, Terminal, ToolError

_DAEMON, _BRIDGE = "dnsconfig", "kata-bridge"
# Behind `explain`.
VERB = "dns"


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
    add_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, terminal: Terminal) -> int:
    """Ask and print. Raises ToolError."""
    if arguments.query and not arguments.name:
        raise ToolError("--query needs a NAME")
    whole_page = _page(arguments)
    page = whole_page.value
    name, type_ = _question(arguments)
    names = candidates(name, *search_of(page.text)) if name else ()
    results = _query(arguments, page, names, type_) if arguments.query else []
    is_good = (
        not page.pod.wait_message
        and page.pod.state == "applied"
        and (not arguments.query or _has_answer(results))
    )
    if terminal.is_document:
        terminal.document(
            "ResolverExplanation",
            {
                "resolver": whole_page.whole,
                "names": list(names),
                "queries": [msgspec.to_builtins(each) for each in results],
            },
        )
    else:
        terminal.lines(render(page, terminal.room))
        terminal.lines(render_names(names, type_, results))
    return 0 if is_good else EXIT_NEGATIVE


def _page(arguments: argparse.Namespace) -> daemons.Page[DnsPage]:
    query = {"pod" if "/" in arguments.pod else "guest": arguments.pod}
    if arguments.tenant is not None:
        query["tenant"] = arguments.tenant
    where = daemons.address_of(arguments)
    try:
        return daemons.ask_whole(where, f"/explain?{urlencode(query)}", DnsPage, _DAEMON)
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
