# SPDX-License-Identifier: Apache-2.0
"""Conntrack entries as `conntrack -L` prints them, and which of them are stale."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from kubeproxy_ext.compute.stale_flows import StaleFlow
from tests.cases.services.namespace import ThreadedNamespace

_FIELD = re.compile(r"(src|dst|sport|dport)=(\S+)")


@dataclass(frozen=True, slots=True)
class KernelEntry:
    """`state` is TCP's, empty for others."""

    protocol: str
    destination: str
    port: int
    reply_source: str
    reply_port: int
    state: str = ""
    has_reply: bool = True


def entries_to(guest: ThreadedNamespace, destination: str) -> list[KernelEntry]:
    """The entries of a guest whose packets were sent to `destination`. Raises NamespaceError."""
    family = "ipv6" if ":" in destination else "ipv4"
    listing = guest.run("conntrack", "-L", "-f", family, "--orig-dst", destination)
    return [entry for line in listing.splitlines() if (entry := _read(line)) is not None]


def is_stale(entry: KernelEntry, flows: Iterable[StaleFlow]) -> bool:
    """Whether one of these flows makes the entry stale: `bridge_api/bridge.proto`, message Flow."""
    return any(_matches(entry, flow) for flow in flows)


def delete(guest: ThreadedNamespace, flows: Iterable[StaleFlow]) -> list[KernelEntry]:
    """Delete the stale entries by original destination and port and the replies' source."""
    flows = tuple(flows)
    found = [
        entry
        for destination in sorted({flow.destination for flow in flows})
        for entry in entries_to(guest, destination)
        if is_stale(entry, flows)
    ]
    for entry in found:
        guest.run(
            *("conntrack", "-D", "-f", "ipv6" if ":" in entry.destination else "ipv4"),
            *("-p", entry.protocol, "--orig-dst", entry.destination, "--orig-port-dst", str(entry.port)),
            *("--reply-src", entry.reply_source),
        )
    return found


def _read(line: str) -> KernelEntry | None:
    words = line.split()
    fields = _FIELD.findall(line)
    if len(fields) != 8:
        return None
    original, reply = dict(fields[:4]), dict(fields[4:])
    state = words[3] if words[0] == "tcp" else ""
    return KernelEntry(
        words[0],
        original["dst"],
        int(original["dport"]),
        reply["src"],
        int(reply["sport"]),
        state,
        "[UNREPLIED]" not in words,
    )


def _matches(entry: KernelEntry, flow: StaleFlow) -> bool:
    if (entry.protocol, entry.destination, entry.port) != (flow.protocol.value, flow.destination, flow.port):
        return False
    source = (entry.reply_source, entry.reply_port)
    if flow.never_translated:
        return not entry.has_reply and source == (entry.destination, entry.port)
    if flow.reply_source and (flow.reply_source, flow.reply_port or entry.reply_port) != source:
        return False
    return f"{entry.reply_source}:{entry.reply_port}" not in flow.keep_replies_from
