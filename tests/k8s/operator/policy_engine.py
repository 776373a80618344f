# SPDX-License-Identifier: Apache-2.0
"""Enforces the NetworkPolicies of the super cluster, which has no engine, by nftables on its nodes.

The rules are made of the objects as they are there, and of the addresses that their selectors select when the
engine is started. As the API has it: a pod that a policy selects may do what the policies admit, answers are
always admitted, and nothing applies between a pod and its own node. What is refused is rejected.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.k8s.ring.api import JsonObject, KubernetesApi
from tests.k8s.ring.processes import run
from tests.k8s.syncer.cluster import SyncedRing
from tests.k8s.syncer.node import SuperNode

_TABLE = "ring_policies"
_POLICIES = "/apis/networking.k8s.io/v1/networkpolicies"
_SIDES = {"Egress": ("egress", "to", "saddr", "daddr"), "Ingress": ("ingress", "from", "daddr", "saddr")}


@dataclass(frozen=True, slots=True)
class ClusterObjects:
    """All that rules are made of."""

    policies: list[JsonObject]
    pods: list[JsonObject]
    namespaces: dict[str, dict[str, str]]

    @classmethod
    def read(cls, api: KubernetesApi) -> ClusterObjects:
        """As they are now. Pods without an address of their own are left out."""
        namespaces = {
            each["metadata"]["name"]: each["metadata"].get("labels", {})
            for each in api.get("/api/v1/namespaces")["items"]
        }
        pods = [
            each
            for each in api.get("/api/v1/pods")["items"]
            if each.get("status", {}).get("podIP") and not each["spec"].get("hostNetwork")
        ]
        return cls(api.get(_POLICIES)["items"], pods, namespaces)

    def rules(self, node: str) -> str:
        """The script for one node."""
        heads, chains = [], []
        for number, pod in enumerate(each for each in self.pods if each["spec"].get("nodeName") == node):
            for kind, (side, peers, own, _) in _SIDES.items():
                applied = [each for each in self.policies if _is_selected(each, pod, kind)]
                if not applied:
                    continue
                chain = f"{side}_{number}"
                heads.append(f"ip {own} {pod['status']['podIP']} jump {chain}")
                admitted = [
                    line
                    for policy in applied
                    for rule in policy["spec"].get(side) or []
                    for line in self._admitted(policy, rule, peers, kind)
                ]
                chains.append(_chain(chain, [*admitted, "reject with icmp admin-prohibited"]))
        head = "type filter hook forward priority 10; policy accept;"
        forward = _chain("forward", [head, "ct state established,related accept", *heads])
        return f"table ip {_TABLE} {{\n{''.join(chains)}{forward}}}\n"

    def _admitted(self, policy: JsonObject, rule: JsonObject, peers: str, kind: str) -> Iterator[str]:
        """Rules that return to the other direction's chain. No peers are all peers, no ports all ports."""
        matches = [""]
        if rule.get(peers):
            matches = [
                f"ip {_SIDES[kind][3]} {match} "
                for each in rule[peers]
                for match in self._addresses(policy["metadata"]["namespace"], each)
            ]
        for match in matches:
            for port in rule.get("ports") or [None]:
                if port is None:
                    yield f"{match}return"
                else:
                    yield f"{match}{port.get('protocol', 'TCP').lower()} dport {int(port['port'])} return"

    def _addresses(self, own: str, peer: JsonObject) -> Iterator[str]:
        if "ipBlock" in peer:
            if peer["ipBlock"].keys() != {"cidr"}:
                raise ValueError(f"peer {peer}")
            yield peer["ipBlock"]["cidr"]
            return
        for pod in self.pods:
            namespace = pod["metadata"]["namespace"]
            if "namespaceSelector" not in peer:
                is_there = namespace == own
            else:
                is_there = matches_selector(peer["namespaceSelector"], self.namespaces[namespace])
            if is_there and matches_selector(peer.get("podSelector") or {}, _labels(pod)):
                yield pod["status"]["podIP"]


def matches_selector(selector: JsonObject, labels: dict[str, str]) -> bool:
    """A label selector. One with expressions is an error: none of ours has any."""
    if selector.keys() - {"matchLabels"}:
        raise ValueError(f"selector {selector}")
    return (selector.get("matchLabels") or {}).items() <= labels.items()


@contextmanager
def enforced(ring: SyncedRing) -> Iterator[None]:
    """Within, the policies that there are apply to the pods that there are."""
    found = ClusterObjects.read(ring.super_cluster.api)
    started: list[SuperNode] = []
    try:
        for node in ring.nodes:
            nft(node, found.rules(node.name))
            started.append(node)
        yield
    finally:
        for node in started:
            nft(node, f"delete table ip {_TABLE}\n")


def nft(node: SuperNode, script: str) -> None:
    """Load a script in a node's network namespace."""
    run([*node.node.namespace.enter, "nft", "-f", "-"], stdin=script.encode())


def _is_selected(policy: JsonObject, pod: JsonObject, kind: str) -> bool:
    return (
        policy["metadata"]["namespace"] == pod["metadata"]["namespace"]
        and kind in policy["spec"]["policyTypes"]
        and matches_selector(policy["spec"]["podSelector"], _labels(pod))
    )


def _labels(pod: JsonObject) -> dict[str, str]:
    found: dict[str, str] = pod["metadata"].get("labels", {})
    return found


def _chain(name: str, lines: Iterable[str]) -> str:
    body = "".join(f"    {line}\n" for line in lines)
    return f"  chain {name} {{\n{body}  }}\n"
