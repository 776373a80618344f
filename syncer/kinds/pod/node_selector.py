# SPDX-License-Identifier: Apache-2.0
"""Node selectors by labels that vNodes have and their super nodes may not: of DaemonSets' pods. Pure.

The super scheduler cannot judge such a label. For a pod that names its one node the label is compared here,
with the vNode's, and does not go down. docs/decisions/0029-*.md has why this is sound for DaemonSets' alone.
"""

from typing import Any

from syncer.core.objects import Object
from syncer.core.plan import Wait
from syncer.core.unknown import Unknown
from syncer.core.view import View
from syncer.policy.refusal_list import shown

NODE_SELECTOR_MISMATCH = "NodeSelectorMismatch"


def translate_node_selector(pod: Object, view: View) -> Wait | None:
    """Take the labels that the policy does not allow from the selector of a DaemonSet's pod.

    Returns why it waits if its vNode does not have them. The selectors of other pods stay, to be refused.
    """
    spec = pod.get("spec")
    if type(spec) is not dict or spec.get("schedulingGates") or not _is_of_daemon_set(pod):
        return None
    node, selector = _only_node(spec), spec.get("nodeSelector")
    if node is None or type(selector) is not dict:
        return None
    allowed = view.policy.pods.node_labels
    compared = {key: value for key, value in selector.items() if not allowed.match(key)}
    if not compared:
        return None
    spec["nodeSelector"] = {key: value for key, value in selector.items() if key not in compared}
    labels = view.vnode_labels(node)
    if isinstance(labels, Unknown):
        return labels.wait()
    if labels is None:
        return Wait(NODE_SELECTOR_MISMATCH, f"there is no vNode {shown(node)}")
    for key, value in compared.items():
        if key not in labels or labels[key] != value:
            label = f"{shown(key)}={shown(value)}"
            return Wait(NODE_SELECTOR_MISMATCH, f"node {shown(node)} does not have the label {label}")
    return None


def _is_of_daemon_set(pod: Object) -> bool:
    meta = pod.get("metadata")
    owners = meta.get("ownerReferences") if type(meta) is dict else None
    return type(owners) is list and any(
        type(each) is dict and each.get("controller") is True and each.get("kind") == "DaemonSet"
        for each in owners
    )


def _only_node(spec: Object) -> str | None:
    """The node of the one term that the DaemonSet controller writes; None for any other affinity."""
    match spec:
        case {
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{} as term]}
                }
            }
        } if _names(term) == {"matchFields"}:
            return _node_of(term["matchFields"])
        case _:
            return None


def _names(term: dict[str, Any]) -> set[str]:
    """The fields of a term that are not empty."""
    return {name for name, value in term.items() if value}


def _node_of(requirements: Any) -> str | None:
    match requirements:
        case [{"key": "metadata.name", "operator": "In", "values": [str(name)]}]:
            return name
        case _:
            return None
