# SPDX-License-Identifier: Apache-2.0
"""How long clients are remembered, by what either side's packet filter prints.

That is hours, so it is not asked with packets. What is compared is the time that goes with an
endpoint; to whom of the Services that share it a time belongs, namespaces seldom leave open.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ruleset.model import EndpointSet, NoBackendAction
from tests.cases.services.namespace import ThreadedNamespace
from tests.k8s.oracle.laboratory import Pair

_CHECKED = re.compile(r"^-A \S+ .*-m recent --rcheck --seconds (\d+) --reap .*-j (\S+)$", re.MULTILINE)
_CHOSEN = re.compile(r"^-A (\S+) (?:.* )?-p (\S+) .*-j DNAT --to-destination (\S+)$", re.MULTILINE)
_OBJECT = re.compile(r"^\t(set|chain) (\S+) \{\n(.*?)^\t\}$", re.MULTILINE | re.DOTALL)
_TIMEOUT = re.compile(r"^\t\ttimeout (\S+)$", re.MULTILINE)
_UPDATED = re.compile(r"update @(\S+) ")
_TRANSLATED = re.compile(r"meta l4proto (\S+) dnat (?:ip6? )?to (\S+)$", re.MULTILINE)
_PART = re.compile(r"(\d+)([dhms])")
_SECONDS = {"d": 86400, "h": 3600, "m": 60, "s": 1}


@dataclass(frozen=True, slots=True)
class Remembered:
    """A client that came to this endpoint is sent there again for so long."""

    protocol: str
    endpoint: str
    timeout_s: int

    def __str__(self) -> str:
        return f"{self.protocol} {self.endpoint} for {self.timeout_s} s"


def wrong_timeouts(pair: Pair) -> list[str]:
    """What our rules remember and kube-proxy's do not, or not for so long; a text each.

    kube-proxy also remembers for what guests have not got, as node ports.
    """
    theirs, ours = (remembered(side.ruled) for side in pair.sides)
    has_some = any(isinstance(to, EndpointSet) and to.affinity_s is not None for to in _targets(pair))
    if has_some and not ours:
        return [f"{pair.place.node}: our rules remember nobody"]
    return [
        f"{pair.place.node}, {pair.mode}: kube-proxy has not got {one}"
        for one in sorted(map(str, ours - theirs))
    ]


def _targets(pair: Pair) -> Iterator[EndpointSet | NoBackendAction]:
    return (frontend.to for frontend in pair.guest.frontends.values())


def remembered(namespace: ThreadedNamespace) -> frozenset[Remembered]:
    """Of both packet filters in a namespace."""
    found = set(_in_nft(namespace.run("nft", "list", "ruleset")))
    for save in ("iptables-legacy-save", "ip6tables-legacy-save"):
        found |= _in_iptables(namespace.run(save))
    return frozenset(found)


def _in_iptables(text: str) -> set[Remembered]:
    ends = {chain: (protocol, end) for chain, protocol, end in _CHOSEN.findall(text)}
    return {Remembered(*ends[chain], int(seconds)) for seconds, chain in _CHECKED.findall(text)}


def _in_nft(text: str) -> set[Remembered]:
    timeouts: dict[str, int] = {}
    updating: list[tuple[str, str, str]] = []
    for kind, name, body in _OBJECT.findall(text):
        timeout, updated, translated = (each.search(body) for each in (_TIMEOUT, _UPDATED, _TRANSLATED))
        if kind == "set" and timeout is not None:
            timeouts[name] = sum(int(count) * _SECONDS[unit] for count, unit in _PART.findall(timeout[1]))
        elif updated is not None and translated is not None:
            updating.append((updated[1], translated[1], translated[2]))
    return {Remembered(protocol, end, timeouts[name]) for name, protocol, end in updating}
