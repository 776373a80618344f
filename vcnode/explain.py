# SPDX-License-Identifier: Apache-2.0
"""`vcnode explain`: where a packet of a guest goes, where it should go, and why."""

import argparse
import asyncio
import ipaddress
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec

from bridge_api.client import BridgeClient, BridgeError, BridgeUnavailableError
from bridge_api.messages import Guest, GuestEventKind, ReadBackReply, ResultCode
from bridge_api.rulesets import BadRuleset, from_part
from daemonkit.status.server import ListenAddress
from ruleset.model import GuestRules, Protocol
from ruletrace.packet import Packet
from vcnode import daemons
from vcnode.core.explain_report import DesiredRules, GuestIdentity, ReadBack, as_json, explain, render
from vcnode.output import add_output
from vcnode.terminal import EXIT_FAILED, EXIT_NEGATIVE, Terminal, ToolError

# An agent has 10 s to read its rules back; on top of that, kata-bridge's queue for the guest.
READ_S = 20.0
LIST_S = 5.0
_PROXY = "kubeproxy-ext"
# The source of packets of a guest without known addresses (RFC 5737, RFC 3849): our rules match no source.
_ANY_SOURCE = {4: "192.0.2.1", 6: "2001:db8::1"}


class ProxyGuest(msgspec.Struct, rename="camel"):
    """A guest in kubeproxy-ext's /explain."""

    id: str
    pod: str
    tenant: str = ""
    tenant_pod: str = ""
    channel: str = ""
    digest: str = ""
    desired_digest: str | None = None
    desired_generation: int | None = None
    problem: str = ""


class ServicesSync(msgspec.Struct, rename="camel"):
    """Whether kubeproxy-ext knows the tenant's Services."""

    sync_state: str
    last_known_age_seconds: float | None = None


class FamilyModel(msgspec.Struct):
    rules: GuestRules


class Elsewhere(msgspec.Struct):
    """A Service of the tenant that has the address in a network where the guest is not."""

    service: str
    network: str


class ExplainPage(msgspec.Struct, rename="camel"):
    """The part of kubeproxy-ext's /explain that this verb reads."""

    guest: ProxyGuest
    ips: tuple[str, ...] = ()
    tenant: ServicesSync | None = None
    distrusted_relists: tuple[str, ...] = ()
    models: tuple[FamilyModel, ...] = ()
    namespaces: dict[str, str] = {}
    elsewhere: tuple[Elsewhere, ...] = ()


def add_to(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser = verbs.add_parser(
        "explain",
        help="where a packet of a pod to an address goes, and why; `explain dns`: how a pod resolves names",
        description="Trace a packet through the model of a guest's rules and through the rules that the guest"
        " has installed; print where it goes, by which rule, and whether the two agree. Exit code 0 if the"
        " packet goes where expected and the guest has its current rules, 1 if not, 3 if that is unknown.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "pod",
        metavar="POD",
        help="namespace/name in the tenant or in the super cluster, or a guest's id from `vcnode guests`",
    )
    parser.add_argument("to", metavar="ADDRESS:PORT", type=_destination, help="IPv6 as [ADDRESS]:PORT")
    parser.add_argument("--protocol", choices=[each.value for each in Protocol], default=Protocol.TCP.value)
    parser.add_argument(
        "--tenant", metavar="KEY", help="the pod's tenant, if several tenants have a pod of that name"
    )
    daemons.add_where(parser, daemons.PROXY_STATUS, _PROXY)
    parser.add_argument(
        "--bridge",
        type=Path,
        default=daemons.BRIDGE_SOCKET,
        metavar="PATH",
        help=f"kata-bridge's socket (default: {daemons.BRIDGE_SOCKET})",
    )
    add_output(parser)
    parser.set_defaults(run=run)


def _destination(text: str) -> tuple[str, int]:
    """`10.0.0.1:80` or `[fd00::1]:80`, for argparse."""
    host, _, port = text.rpartition(":")
    is_port = port.isascii() and port.isdigit() and 0 < int(port) < 65536
    try:
        address = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        address = None
    is_bracketed = host.startswith("[") and host.endswith("]")
    if address is None or not is_port or is_bracketed != (address.version == 6):
        raise argparse.ArgumentTypeError(f"{text!r} is neither ADDRESS:PORT nor [ADDRESS]:PORT")
    return str(address), int(port)


def run(arguments: argparse.Namespace, terminal: Terminal) -> int:
    """Ask both daemons and print. Raises ToolError."""
    where = daemons.address_of(arguments)
    destination, port = arguments.to
    guest, rules = asyncio.run(_from_bridge(arguments.bridge, arguments.pod, arguments.tenant))
    page: ExplainPage | str
    if guest is None:
        # kata-bridge is away: kubeproxy-ext knows the pod, and half of the answer.
        page = _page_of_pod(where, arguments.pod, arguments.tenant, destination, str(rules))
        guest = _guest_of_page(page)
    else:
        try:
            page = _page(where, destination, guest=guest.id)
        except (ToolError, daemons.ErrorResponse) as error:
            page = f"kubeproxy-ext: {error}"
    packet = Packet(_source(guest, destination), Protocol(arguments.protocol), destination, port)
    explanation = explain(guest, packet, _desired(page, packet), rules)
    if terminal.is_document:
        terminal.document("ServiceExplanation", as_json(explanation))
    else:
        terminal.lines(render(explanation, terminal.room))
    if explanation.agrees is None:
        return EXIT_FAILED
    return 0 if explanation.is_good else EXIT_NEGATIVE


# ---- kata-bridge


async def _from_bridge(
    socket: Path, pod: str, tenant: str | None
) -> tuple[GuestIdentity | None, ReadBack | str]:
    """The guest, None if kata-bridge cannot be asked, and its rules or why they are unknown.

    Raises ToolError unless exactly one guest has that name.
    """
    async with BridgeClient(socket, timeout_s=READ_S) as bridge:
        try:
            guests, is_whole = await _guests(bridge)
        except BridgeError as error:
            return None, f"kata-bridge: {error}{_unavailable_hint(error)}"
        guest = _identity(choose(guests, pod, tenant, is_whole=is_whole))
        try:
            return guest, _read_back(await bridge.read_back(guest.id))
        except (BridgeError, BadRuleset) as error:
            return guest, f"kata-bridge: {error}"


async def _guests(bridge: BridgeClient) -> tuple[list[Guest], bool]:
    """The guests that kata-bridge knows, and whether it has listed all sandboxes. Raises BridgeError."""
    found: dict[str, Guest] = {}
    try:
        async with asyncio.timeout(LIST_S):
            async for event in bridge.watch_guests():
                if event.kind is GuestEventKind.SYNCED:
                    return list(found.values()), True
                if event.guest is not None:
                    found[event.guest.id] = event.guest
    except TimeoutError:
        pass  # it has not listed the node's sandboxes yet
    return list(found.values()), False


def _unavailable_hint(error: BridgeError) -> str:
    return "; does it run here?" if isinstance(error, BridgeUnavailableError) else ""


def choose(guests: Sequence[Guest], pod: str, tenant: str | None, *, is_whole: bool) -> Guest:
    """The one guest of that name, in the tenant or the super cluster, or of that id.

    Raises ToolError.
    """
    theirs = [guest for guest in guests if tenant in (None, guest.tenant)]
    if "/" in pod:
        found = [
            guest
            for guest in theirs
            if pod in (f"{guest.namespace}/{guest.name}", f"{guest.tenant_namespace}/{guest.tenant_name}")
        ]
    else:
        found = [guest for guest in theirs if guest.id == pod] or [
            guest for guest in theirs if guest.id.startswith(pod)
        ]
    if not found:
        reason = "" if is_whole else "; kata-bridge has not listed all sandboxes of this node yet"
        raise ToolError(f"{pod}: no guest on this node has that name{reason} (see `vcnode guests`)")
    if len({guest.tenant for guest in found}) > 1:
        names = ", ".join(sorted(guest.tenant or "none" for guest in found))
        raise ToolError(f"{pod}: tenants {names} have a pod of that name: add --tenant")
    if len(found) > 1:
        names = ", ".join(sorted(guest.id for guest in found))
        raise ToolError(f"{pod}: guests {names} have that name: give the id instead")
    return found[0]


def _identity(guest: Guest) -> GuestIdentity:
    return GuestIdentity(
        id=guest.id,
        pod=f"{guest.namespace}/{guest.name}",
        tenant=guest.tenant,
        tenant_pod=f"{guest.tenant_namespace}/{guest.tenant_name}" if guest.tenant_name else "",
        ips=guest.ips,
        channel=guest.capabilities.channel if guest.capabilities is not None else "",
        digest=guest.digest,
        not_injectable=guest.not_injectable,
    )


def _read_back(reply: ReadBackReply) -> ReadBack | str:
    """Raises `BadRuleset`."""
    result = reply.result
    if result is not None and result.code is not ResultCode.APPLIED:
        return result.message or result.code.name.lower()
    return ReadBack(tuple(map(from_part, reply.installed)), tuple(map(from_part, reply.desired)))


# ---- kubeproxy-ext


def _page(where: ListenAddress, destination: str, **guest: str) -> ExplainPage:
    """Raises ToolError and `daemons.ErrorResponse`."""
    query = urlencode({**guest, "address": destination})
    return daemons.ask(where, f"/explain?{query}", ExplainPage, _PROXY)


def _page_of_pod(
    where: ListenAddress, pod: str, tenant: str | None, destination: str, why: str
) -> ExplainPage:
    """Ask by the pod's name alone. Raises ToolError, which begins with why kata-bridge has no answer."""
    queries: list[dict[str, str]] = [{"pod": pod}] if "/" in pod else [{"guest": pod}]
    if tenant is not None and "/" in pod:
        queries.insert(0, {"pod": pod, "tenant": tenant})
    answer = ""
    for query in queries:
        try:
            page = _page(where, destination, **query)
        except ToolError as error:
            raise ToolError(f"{why}; kubeproxy-ext: {error}") from None
        except daemons.ErrorResponse as error:
            answer = str(error)
            continue
        if tenant in (None, page.guest.tenant):
            return page
    hint = "" if tenant is not None else " (the tenant's name for it needs --tenant)"
    raise ToolError(f"{why}; kubeproxy-ext: {pod}: {answer or 'no such guest'}{hint}")


def _guest_of_page(page: ExplainPage) -> GuestIdentity:
    guest = page.guest
    return GuestIdentity(
        guest.id, guest.pod, guest.tenant, guest.tenant_pod, page.ips, guest.channel, guest.digest
    )


def _desired(page: ExplainPage | str, packet: Packet) -> DesiredRules | str:
    if isinstance(page, str):
        return page
    rules = [model.rules for model in page.models if model.rules.family is packet.family]
    known = page.tenant or ServicesSync("notSynced")
    return DesiredRules(
        rules[0] if rules else None,
        digest=page.guest.desired_digest or "",
        generation=page.guest.desired_generation,
        problem=page.guest.problem,
        sync_state=known.sync_state,
        last_known_age_s=known.last_known_age_seconds,
        distrusted_namespaces=page.distrusted_relists,
        namespaces=page.namespaces,
        elsewhere=tuple((each.service, each.network) for each in page.elsewhere),
    )


def _source(guest: GuestIdentity, destination: str) -> str:
    version = ipaddress.ip_address(destination).version
    ours = (ip for ip in guest.ips if (":" in ip) == (version == 6))
    return next(ours, _ANY_SOURCE[version])
