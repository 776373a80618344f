# SPDX-License-Identifier: Apache-2.0
"""Pods of both sides for the tests of this folder, and what the engine and the API servers make of a plan."""

import copy
from dataclasses import replace
from typing import Any

from devkit.syncer.fake_view import TENANT, FakeView
from syncer.core.objects import Object
from syncer.core.plan import Action, Bind, Create, Delete, IssueTokens, Patch, Plan, Side
from syncer.kinds.pod.sync import SYNC
from syncer.policy import patterns
from syncer.policy.sync_policy import DEFAULT, FieldLimits, ImagePull
from tenancy import keys
from tests.unit.syncer.kinds.objects import plan_unchanged

TENANT_CLUSTER = replace(
    TENANT,
    cluster_domain="cluster.local",
    transparent_prefixes=("transparent.example.com",),
    opaque_prefixes=("opaque.example.com",),
)
KEY = TENANT_CLUSTER.key
SUPER_NAMESPACE = f"{KEY}-plain"
UID, SUPER_UID = "11111111-tenant", "22222222-super"
API_ADDRESS, DNS_ADDRESS = "10.0.0.1", "10.0.0.10"


def service(namespace: str, name: str, address: str, *ports: Object, super_: bool = True) -> Object:
    return {
        "kind": "Service",
        "metadata": {"namespace": f"{KEY}-{namespace}" if super_ else namespace, "name": name},
        "spec": {"clusterIP": address, "ports": list(ports)},
    }


ANY = patterns.of("*")
# The rules of policies have tests of their own.
OPEN_POLICY = replace(
    DEFAULT,
    fields=FieldLimits(allowed=ANY),
    pods=replace(
        DEFAULT.pods,
        toleration_keys=ANY,
        node_labels=ANY,
        priority_classes=ANY,
        denied_annotations=patterns.of(),
        image_pull=ImagePull.AS_WRITTEN,
        host_namespaces=frozenset({"Network"}),
        host_ports=frozenset({80}),
        schedulers=frozenset({"", "s"}),
        runtime_classes=frozenset({"kata", "runc"}),
        projected_sources=DEFAULT.pods.projected_sources | {"podCertificate"},
    ),
)

API_SERVICE = service("default", "kubernetes", API_ADDRESS, {"name": "https", "port": 443, "protocol": "TCP"})
DNS_SERVICE = service("kube-system", "kube-dns", DNS_ADDRESS, {"name": "dns", "port": 53, "protocol": "UDP"})


def view(*super_objects: Object, tenant_objects: tuple[Object, ...] = (), **fields: Any) -> FakeView:
    """A view with the Services that each tenant has, and these."""
    return FakeView(
        tenant=TENANT_CLUSTER,
        super_objects=[API_SERVICE, DNS_SERVICE, *super_objects],
        tenant_objects=list(tenant_objects),
        **{"policy": OPEN_POLICY, **fields},
    )


def pod(spec: Object | None = None, /, status: Object | None = None, **meta: Any) -> Object:
    """A tenant's pod with one container, as its API server has it."""
    return copy.deepcopy(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": "p",
                "namespace": "plain",
                "uid": UID,
                "resourceVersion": "5",
                "generation": 1,
                "creationTimestamp": "2024-01-01T00:00:00Z",
                **meta,
            },
            "spec": {
                "containers": [{"name": "c", "image": "app:1"}],
                "dnsPolicy": "ClusterFirst",
                "serviceAccountName": "default",
                "enableServiceLinks": True,
                **(spec or {}),
            },
            "status": {"phase": "Pending", "qosClass": "BestEffort"} if status is None else status,
        }
    )


def plan(tenant: Object | None, found: Object | None = None, seen: FakeView | None = None) -> Plan:
    """The plan for copies of both pods."""
    return plan_unchanged(SYNC, ("plain", "p"), tenant, found, seen or view())


def created(tenant: Object, seen: FakeView | None = None) -> Object:
    """The super pod that is made of a tenant's."""
    found = plan(tenant, None, seen).actions[-1]
    assert isinstance(found, Create)
    return found.body


def super_pod(tenant: Object, seen: FakeView | None = None, node: str = "", **meta: Any) -> Object:
    """The super pod of a tenant's pod as the super API server has it."""
    found = copy.deepcopy(created(tenant, seen))
    found["metadata"] |= {"uid": SUPER_UID, "resourceVersion": "9", "generation": 1, **meta}
    found["status"] = {"phase": "Pending", "qosClass": "BestEffort"}
    if node:
        found["spec"]["nodeName"] = node
    return found


def token_secret(action: IssueTokens) -> Object:
    """The part of the Secret that plans look at."""
    return {
        "kind": "Secret",
        "metadata": {
            "name": action.secret_name,
            "namespace": f"{KEY}-{action.namespace}",
            "labels": {keys.POD_TOKENS: action.uid},
        },
    }


def deleting(value: Object, grace_s: int) -> Object:
    found = copy.deepcopy(value)
    found["metadata"] |= {
        "deletionTimestamp": "2024-01-01T00:00:00Z",
        "deletionGracePeriodSeconds": grace_s,
    }
    return found


def bound(value: Object, node: str = "n1") -> Object:
    """A pod after its binding."""
    found = copy.deepcopy(value)
    found["spec"]["nodeName"] = node
    found["status"] = {**found["status"], "conditions": [{"type": "PodScheduled", "status": "True"}]}
    return found


def brief(found: Plan) -> list[tuple[Any, ...]]:
    """The actions in short: what is deleted and bound, and the bodies of patches."""
    return [_brief(action) for action in found.actions]


def _brief(action: Action) -> tuple[Any, ...]:
    match action:
        case Delete():
            assert action.uid == (UID if action.side is Side.TENANT else SUPER_UID)
            return ("delete", action.side.value, action.grace_s)
        case Patch():
            assert action.uid == (UID if action.side is Side.TENANT else SUPER_UID)
            return ("patch", action.side.value, action.subresource, action.body)
        case Bind():
            assert action.uid == UID
            return ("bind", action.node)
        case Create():
            return ("create", action.side.value)
        case IssueTokens():
            return ("tokens", action.secret_name)


class Clusters:
    """Both API servers, as far as one pod needs them."""

    def __init__(self, tenant: Object | None, found: Object | None = None) -> None:
        self.pods = {Side.TENANT: tenant, Side.SUPER: found}

    def plan(self, seen: FakeView) -> Plan:
        return plan(self.pods[Side.TENANT], self.pods[Side.SUPER], seen)

    def carry_out(self, action: Action) -> None:
        match action:
            case Create():
                body = copy.deepcopy(action.body)
                body["metadata"] |= {"uid": SUPER_UID, "resourceVersion": "1", "generation": 1}
                self.pods[action.side] = {**body, "status": {"phase": "Pending", "qosClass": "BestEffort"}}
            case Patch():
                found = self.pods[action.side]
                assert found is not None
                self.pods[action.side] = patched(found, action.body, is_strategic=action.is_strategic)
            case Delete():
                found = self.pods[action.side]
                assert found is not None
                gone = action.grace_s == 0 or not found["spec"].get("nodeName")
                self.pods[action.side] = None if gone else deleting(found, action.grace_s or 30)
            case Bind():
                found = self.pods[Side.TENANT]
                assert found is not None
                found["spec"]["nodeName"] = action.node
            case IssueTokens():
                pass

    def settle(self, seen: FakeView) -> list[Action]:
        """Carry out plans until one has no actions; the actions in order."""
        done: list[Action] = []
        for _ in range(8):
            if self.pods[Side.TENANT] is None and self.pods[Side.SUPER] is None:
                return done
            found = self.plan(seen)
            if not found.actions:
                return done
            for action in found.actions:
                self.carry_out(action)
                if isinstance(action, IssueTokens):
                    seen.super_objects.append(token_secret(action))
            done += found.actions
        raise AssertionError(f"does not settle: {found}")


_MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "schedulingGates": "name",
    "conditions": "type",
}


def patched(value: Any, patch: Any, *, is_strategic: bool = False) -> Any:
    """The value after a JSON merge patch, or a strategic one over the lists above."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    found = dict(value) if isinstance(value, dict) else {}
    for name, each in patch.items():
        if each is None:
            found.pop(name, None)
        elif is_strategic and name in _MERGE_KEYS and isinstance(each, list):
            found[name] = _merged(found.get(name) or [], each, _MERGE_KEYS[name])
        else:
            found[name] = patched(found.get(name), each, is_strategic=is_strategic)
    return found


def _merged(values: list[Object], patches: list[Object], key: str) -> list[Object]:
    found = {each[key]: each for each in values}
    for each in patches:
        if each.get("$patch") == "delete":
            found.pop(each[key], None)
        else:
            found[each[key]] = patched(found.get(each[key]), each, is_strategic=True)
    return list(found.values())


def owner_annotations(**others: str) -> dict[str, str]:
    """The annotations of the super pod of `pod()`."""
    return {
        keys.CLUSTER: KEY,
        keys.UID: UID,
        keys.NAMESPACE: "plain",
        keys.OWNER_REFERENCES: "null",
        keys.VC_NAME: "tenant-00",
        keys.VC_NAMESPACE: "vcs",
        keys.CONTAINERS: "c",
        **others,
    }
