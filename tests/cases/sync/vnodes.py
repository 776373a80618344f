# SPDX-License-Identifier: Apache-2.0
"""Runs a case of a Node: the vNode of a super node, and how it follows that node's changes."""

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from syncer.vnodes.desired import AgentEndpoint, VNodePolicy, desired_vnode, vnode_changes
from tests.cases.sync.changes import changes, differs
from tests.cases.sync.load import Case, merged
from tests.cases.sync.placeholders import TIME, Placeholders
from tests.cases.sync.server_defaults import Object

_POLICY = VNodePolicy()
_LEFT_OUT = ("uid", "resourceVersion")
_TENANT_OWN = {"metadata": {"annotations": {"tenant-own": "1"}}}


class VNodeRun:
    """One case; the tenant's API server is one object."""

    def __init__(self, case: Case, placeholders: Placeholders) -> None:
        self._case = case
        self._placeholders = placeholders
        self._super: Object = placeholders.replaced(case.given)
        self._super["metadata"]["uid"] = "super-node"
        self._tenant: Object = {}

    def run(self) -> Iterator[str]:
        """A line for each difference."""
        self._tenant = self._created(self._desired())
        self._sync()
        wanted = self._placeholders.replaced(self._case.expected["tenant"])
        yield from differs(wanted, self._compared(), "tenant")
        for number, step in enumerate(self._case.expected.get("after") or (), 1):
            for line in self._run_step(step):
                yield f"step {number} ({step['do']}): {line}"

    def _run_step(self, step: Mapping[str, Any]) -> Iterator[str]:
        before = self._compared()
        if "tenant-own" in step["do"]:
            self._tenant = merged(self._tenant, _TENANT_OWN)
        for change in self._placeholders.replaced(step["super"]["changed"]):
            _set(self._super, change["path"], change["now"])
        self._sync()
        wanted = self._placeholders.replaced(step["tenant"]["changed"])
        found = [*changes(before, self._compared())]
        yield from differs(
            sorted(wanted, key=lambda each: str(each["path"])),
            sorted(found, key=lambda each: str(each["path"])),
            "tenant.changed",
        )

    def _desired(self) -> Object:
        spoken = self._super["status"]["addresses"]
        addresses = tuple(each["address"] for each in spoken if each["type"] == "InternalIP")
        return desired_vnode(self._super, _POLICY, AgentEndpoint(addresses))

    def _created(self, body: Object) -> Object:
        """What the tenant's API server makes of it: a new Node is not ready."""
        value = copy.deepcopy(body)
        value["metadata"] |= {"uid": "tenant-node", "resourceVersion": "1"}
        taints = value["spec"].setdefault("taints", [])
        for each in taints:
            if each["key"] == "node.kubernetes.io/unschedulable":
                each["timeAdded"] = TIME
        taints.append({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"})
        return value

    def _sync(self) -> None:
        for patch in vnode_changes(self._desired(), self._tenant, _POLICY):
            self._tenant = merged(self._tenant, patch.body)

    def _compared(self) -> Object:
        found = copy.deepcopy(self._tenant)
        for field in ("apiVersion", "kind"):
            found.pop(field, None)
        for field in _LEFT_OUT:
            found["metadata"].pop(field, None)
        return found


def _set(value: Any, path: list[str], to: Any) -> None:
    *parents, last = path
    for name in parents:
        value = value[name]
    if to is None:
        value.pop(last, None)
    else:
        value[last] = to
