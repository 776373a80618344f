# SPDX-License-Identifier: Apache-2.0
"""kata-bridge's guests and the pods that its start gate blocks, as lines for people."""

from collections.abc import Sequence
from typing import Any

import msgspec

from vcnode.terminal import Style, duration, styled, table, wrapped

# containerd's ids have 64 hex digits; twelve tell them apart, as in `crictl pods`.
_ID_CHARACTERS = 12
_HEX = frozenset("0123456789abcdef")
# Any other state is a problem. A pod without Services is no guest that lacks something.
_STYLES = {"current": Style.GOOD, "noRuleset": None}


class GuestStatus(msgspec.Struct, rename="camel"):
    """A guest in kata-bridge's /status."""

    id: str
    pod: str
    state: str
    tenant: str = ""
    tenant_pod: str = ""
    networks: tuple[str, ...] = ()
    channel: str = ""
    generation: int = 0
    digest: str = ""
    desired_generation: int | None = None
    message: str = ""
    ipv6_message: str = msgspec.field(name="ipv6Message", default="")
    netns: str = ""
    behind_seconds: float | None = None


class BlockedPod(msgspec.Struct, rename="camel"):
    """A pod that the start gate blocks, guest or not."""

    pod: str
    id: str = ""
    tenant: str = ""
    containers: tuple[str, ...] = ()
    for_seconds: float = 0.0
    message: str = ""


class StartGateStatus(msgspec.Struct, rename="camel"):
    """The start gate in kata-bridge's /status."""

    policy: str = ""
    blocked: tuple[BlockedPod, ...] = ()


class BridgeStatus(msgspec.Struct, rename="camel"):
    """The part of kata-bridge's /status that this verb reads."""

    daemon: str
    guests: tuple[GuestStatus, ...] = ()
    is_synced: bool = False
    unmanaged: int = 0
    problems: dict[str, str] = {}
    start_gate: StartGateStatus | None = None


def listed(status: dict[str, Any], tenant: str | None) -> dict[str, Any]:
    """A document of kata-bridge's whole /status: guests in `items`, the rest in `status`; of one tenant's."""
    rest = {key: value for key, value in status.items() if key != "guests"}
    if gate := rest.get("startGate"):
        rest["startGate"] = gate | {"blocked": _of_tenant(gate.get("blocked", []), tenant)}
    return {"items": _of_tenant(status.get("guests", []), tenant), "status": rest}


def _of_tenant(items: list[dict[str, Any]], tenant: str | None) -> list[dict[str, Any]]:
    return [each for each in items if tenant in (None, each.get("tenant", ""))]


def render(
    status: BridgeStatus, guests: Sequence[GuestStatus], width: int | None = None, *, is_wide: bool = False
) -> list[str]:
    """The lines to print, of at most `width` characters; `is_wide` adds columns."""
    lines = []
    if not status.is_synced:
        lines.append("kata-bridge has not listed the sandboxes of this node yet: guests may be missing")
    lines += (f"{name}: {problem}" for name, problem in sorted(status.problems.items()))
    if guests:
        more = ("SUPER POD", "GUEST", "CHANNEL", "GENERATION") if is_wide else ()
        head = ("POD", "TENANT", "NETWORK", "STATE", *more, "WHY")
        lines += table([head, *(_row(guest, is_wide=is_wide) for guest in guests)], width)
    else:
        lines.append("no guests")
    if status.unmanaged:
        lines.append(
            f"{status.unmanaged} sandboxes are not managed: in the host's network, or of another runtime"
        )
    return [part for line in lines for part in wrapped(line, width)]


def render_blocked(
    pods: Sequence[BlockedPod], width: int | None = None, *, is_wide: bool = False
) -> list[str]:
    """The lines about blocked pods."""
    if not pods:
        return []
    more = ("CONTAINERS",) if is_wide else ()
    head = ("BLOCKED", "TENANT", *more, "FOR", "WHY")
    rows = (
        (
            styled(pod.pod, Style.BAD),
            pod.tenant or "-",
            *((",".join(pod.containers),) if is_wide else ()),
            duration(pod.for_seconds),
            pod.message,
        )
        for pod in pods
    )
    return ["", *table([head, *rows], width)]


def _row(guest: GuestStatus, *, is_wide: bool) -> tuple[str, ...]:
    more = (guest.pod, _short_id(guest), guest.channel or "-", _generation(guest)) if is_wide else ()
    return (
        # As `vcnode explain` takes it: the tenant's own name is shorter, and TENANT has the rest.
        guest.tenant_pod or guest.pod,
        guest.tenant or "-",
        ",".join(guest.networks),
        styled(guest.state, _STYLES.get(guest.state, Style.BAD)),
        *more,
        _why(guest),
    )


def _short_id(guest: GuestStatus) -> str:
    return guest.id[:_ID_CHARACTERS] if _HEX.issuperset(guest.id) else guest.id


def _generation(guest: GuestStatus) -> str:
    applied = str(guest.generation) if guest.digest else "-"
    if guest.desired_generation not in (None, guest.generation) and guest.state != "current":
        return f"{applied} of {guest.desired_generation}"
    return applied


def _why(guest: GuestStatus) -> str:
    why = guest.message
    if guest.behind_seconds is not None and guest.state != "noRuleset":
        why = f"{why} (for {duration(guest.behind_seconds)})"
    if guest.ipv6_message:
        why = "; ".join(filter(None, (why, f"no IPv6 rules: {guest.ipv6_message}")))
    return why
