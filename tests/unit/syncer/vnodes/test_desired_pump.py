# SPDX-License-Identifier: Apache-2.0
"""Work and memory for a vNode grow as the super node and the tenant's Node do, and no faster.

A tenant may write anything into its Nodes that Kubernetes' schema has: as many labels, taints, conditions and
addresses as fit into etcd.
"""

from collections.abc import Callable
from typing import Any

from syncer.vnodes.desired import (
    AgentAddress,
    AgentEndpoint,
    VNodePolicy,
    VNodeScope,
    agent_addresses,
    desired_vnode,
    is_own_vnode,
    quota_resources,
    reduced_node,
    vnode_changes,
    vnode_facts,
    without_heartbeats,
)
from tenancy import keys
from tests.pump import ABSENT, Schema, Sizes, Text, peak_bytes, steps, superlinear

_VALUES: dict[str, Any] = {
    "metadata.name": "node-7",
    "metadata.uid": "uid-7",
    "metadata.resourceVersion": "7",
    "metadata.managedFields": ABSENT,
    # All of them are to be looked at.
    "status.addresses[].type": "InternalIP",
    "status.conditions[].type": "Ready",
    "spec.taints[].key": lambda where: Text(f"shown.example/{where}"),
}
_NODE = Schema("Node", _VALUES)
_SIDES = ("super", "tenant")
_HARD, _LABELS, _TAINTS, _SELECTED = "quota", "policy labels", "policy taints", "policy node labels"
_PLACES = (
    *(f"{side} {place}" for side in _SIDES for place in _NODE.places()),
    *(_HARD, _LABELS, _TAINTS, _SELECTED),
)


def _side(sizes: Sizes, side: str, text: Callable[[str], str]) -> dict[str, Any]:
    start = f"{side} "
    below = {place.removeprefix(start): size for place, size in sizes.items() if place.startswith(start)}
    return _NODE.object(below, text=text)


def _policy(sizes: Sizes) -> VNodePolicy:
    return VNodePolicy(
        labels=frozenset(
            ("key-0", "shown.example/", *(f"l{n}.example/" for n in range(sizes.get(_LABELS, 0))))
        ),
        taints=frozenset(("shown.example/", *(f"t{n}.example/" for n in range(sizes.get(_TAINTS, 0))))),
        resources=quota_resources({f"requests.e.example/{n}": "1" for n in range(sizes.get(_HARD, 0))}),
        scope=VNodeScope.ALL,
        node_labels={f"key-{n}": "x" for n in range(sizes.get(_SELECTED, 0))},
        is_schedulable=True,
    )


def _work(sizes: Sizes, *, is_equal: bool = False) -> Callable[[], None]:
    """From the super node as it is watched to the patches of the tenant's Node."""
    above, actual, policy = _side(sizes, "super", Text), _side(sizes, "tenant", _other), _policy(sizes)
    actual["metadata"]["labels"] |= {keys.VIRTUAL_NODE: "true"}
    actual["metadata"]["annotations"] |= {keys.VNODE_OF: "uid-7"}
    if is_equal:
        actual = desired_vnode(reduced_node(above), policy, AgentEndpoint(("192.0.2.1",)))

    def work() -> None:
        reduced = reduced_node(above)
        without_heartbeats(reduced)
        policy.covers(reduced)
        endpoint = AgentEndpoint(agent_addresses(AgentAddress.NODE, above, None, None))
        desired = desired_vnode(reduced, policy, endpoint, "2026-01-01T00:00:00Z")
        assert is_own_vnode(actual)
        assert vnode_facts(actual) is not None
        assert vnode_changes(desired, actual, policy)

    return work


def _other(text: str) -> str:
    return Text(text if text.isalpha() else f"{text}y")


def test_work_for_a_vnode_is_no_product_of_two_lists() -> None:
    assert superlinear(lambda sizes: steps(_work(sizes)), _PLACES) == []
    assert superlinear(lambda sizes: steps(_work(sizes, is_equal=True)), _PLACES) == []


def test_memory_for_a_vnode_is_no_product_of_two_lists() -> None:
    assert superlinear(lambda sizes: peak_bytes(_work(sizes)), _PLACES, first=16, noise=64 << 10) == []
