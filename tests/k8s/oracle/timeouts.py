# SPDX-License-Identifier: Apache-2.0
"""Affinity timeouts, as each side's packet filter prints them.

Timeouts are hours long, so packets cannot measure them. The timeouts of each endpoint are compared; Services
that share an endpoint are rare, so a timeout's Service is seldom ambiguous.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ruleset.model import EndpointSet, NoBackendAction
from tests.cases.services.namespace import ThreadedNamespace
from tests.k8s.oracle.laboratory import NodeComparison

_CHECKED = re.compile(r"^-A \S+ .*-m recent --rcheck --seconds (\d+) --reap .*-j (\S+)$", re.MULTILINE)
_CHOSEN = re.compile(r"^-A (\S+) (?:.* )?-p (\S+) .*-j DNAT --to-destination (\S+)$", re.MULTILINE)
_OBJECT = re.compile(r"^\t(set|chain) (\S+) \{\n(.*?)^\t\}$", re.MULTILINE | re.DOTALL)
_TIMEOUT = re.compile(r"^\t\ttimeout (\S+)$", re.MULTILINE)
_UPDATED = re.compile(r"update @(\S+) ")
_TRANSLATED = re.compile(r"meta l4proto (\S+) dnat (?:ip6? )?to (\S+)$", re.MULTILINE)
_PART = re.compile(r"(\d+)([dhms])")
_SECONDS = {"d": 86400, "h": 3600, "m": 60, "s": 1}


@dataclass(frozen=True, slots=True)
class AffinityTimeout:
    """For so long a client of this endpoint stays there."""

    protocol: str
    endpoint: str
    timeout_s: int

    def __str__(self) -> str:
        return f"{self.protocol} {self.endpoint} for {self.timeout_s} s"


def wrong_timeouts(comparison: NodeComparison) -> list[str]:
    """A message for each affinity timeout of ours that kube-proxy's rules lack.

    kube-proxy has more, such as those of node ports.
    """
    theirs, ours = (affinity_timeouts(side.ruled) for side in comparison.sides)
    has_some = any(isinstance(to, EndpointSet) and to.affinity_s is not None for to in _targets(comparison))
    if has_some and not ours:
        return [f"{comparison.node.name}: our rules have no affinity timeouts"]
    return [
        f"{comparison.node.name}, {comparison.mode}: kube-proxy lacks {one}"
        for one in sorted(map(str, ours - theirs))
    ]


def _targets(comparison: NodeComparison) -> Iterator[EndpointSet | NoBackendAction]:
    return (frontend.to for frontend in comparison.guest.frontends.values())


def affinity_timeouts(namespace: ThreadedNamespace) -> frozenset[AffinityTimeout]:
    """Of both packet filters in a namespace."""
    found = set(_in_nft(namespace.run("nft", "list", "ruleset")))
    for save in ("iptables-legacy-save", "ip6tables-legacy-save"):
        found |= _in_iptables(namespace.run(save))
    return frozenset(found)


def _in_iptables(text: str) -> set[AffinityTimeout]:
    ends = {chain: (protocol, end) for chain, protocol, end in _CHOSEN.findall(text)}
    return {AffinityTimeout(*ends[chain], int(seconds)) for seconds, chain in _CHECKED.findall(text)}


def _in_nft(text: str) -> set[AffinityTimeout]:
    timeouts: dict[str, int] = {}
    updating: list[tuple[str, str, str]] = []
    for kind, name, body in _OBJECT.findall(text):
        timeout, updated, translated = (each.search(body) for each in (_TIMEOUT, _UPDATED, _TRANSLATED))
        if kind == "set" and timeout is not None:
            timeouts[name] = sum(int(count) * _SECONDS[unit] for count, unit in _PART.findall(timeout[1]))
        elif updated is not None and translated is not None:
            updating.append((updated[1], translated[1], translated[2]))
    return {AffinityTimeout(protocol, end, timeouts[name]) for name, protocol, end in updating}
