# SPDX-License-Identifier: Apache-2.0
"""Each field of each kind with a value of each JSON type.

Its author reads what is wrong with it, or plans take it. None makes a plan fail.
"""

import copy
import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from devkit.syncer.fake_view import FakeView
from syncer.caches import shapes
from syncer.caches.cached_object import parser_of
from syncer.core.objects import Object
from syncer.core.pair import Pair
from syncer.core.plan import Create
from syncer.core.view import PodDns
from syncer.kinds import table
from syncer.kinds.custom_resource import CustomResource
from syncer.kinds.port import KindSync, Scope
from tests.cases.sync.policy import PERMISSIVE
from tests.unit.syncer.kinds.pod.pods import view
from tests.unit.syncer.policy.pod_examples import ORDINARY

KINDS = {
    each.kind.kind: each
    for each in table.kinds(
        sorted(table.optional_names()),
        [CustomResource("example.com", "v1", "widgets", "Widget")],
        pod_dns=PodDns.NODE,
    )
    if each.scope in (Scope.NAMESPACED, Scope.SYSTEM, Scope.NAMESPACE) and each.kind.kind != "Event"
}
VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1.5, "x", "", [], {}, [None], [0], ["x"], [{}], [[]], {"a": None}, {"a": 0}, {"a": {}},
)  # fmt: skip
_SELECTOR = {
    "matchLabels": {"app": "a"},
    "matchExpressions": [{"key": "b", "operator": "In", "values": ["c"]}],
}
_TERMS = {
    "requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": _SELECTOR, "namespaceSelector": _SELECTOR, "namespaces": ["ns"], "topologyKey": "k"}
    ],
    "preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "podAffinityTerm": {"labelSelector": _SELECTOR, "topologyKey": "k"}}
    ],
}
_POD: Object = copy.deepcopy(ORDINARY)
_POD["spec"] |= {
    "hostname": "h",
    "subdomain": "s",
    "terminationGracePeriodSeconds": 30,
    "activeDeadlineSeconds": 30,
    "enableServiceLinks": True,
    "dnsPolicy": "ClusterFirst",
    "dnsConfig": {
        "nameservers": ["192.0.2.1"],
        "searches": ["a"],
        "options": [{"name": "ndots", "value": "5"}],
    },
    "readinessGates": [{"conditionType": "example.com/g"}],
    "schedulingGates": [{"name": "example.com/g"}],
    "hostAliases": [{"ip": "192.0.2.1", "hostnames": ["h"]}],
    "topologySpreadConstraints": [{"labelSelector": _SELECTOR, "topologyKey": "k", "matchLabelKeys": ["a"]}],
    "affinity": {"podAffinity": _TERMS, "podAntiAffinity": _TERMS},
    "ephemeralContainers": [{"name": "e", "image": "e", "env": [{"name": "A", "value": "$(B)"}]}],
    "imagePullSecrets": [{"name": "s"}],
}
_POD["spec"]["containers"][0] |= {
    "env": [
        {"name": "A", "value": "$(B)"},
        {"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
    ],
    "envFrom": [{"configMapRef": {"name": "c"}}],
    "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}},
}
_POD["spec"]["volumes"] += [
    {"name": "s", "secret": {"secretName": "s", "optional": True}},
    {"name": "c", "configMap": {"name": "kube-root-ca.crt"}},
    {"name": "d", "downwardAPI": {"items": [{"path": "p", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
]
_POD["status"] = {
    "phase": "Running",
    "observedGeneration": 1,
    "podIPs": [{"ip": "10.244.0.1"}],
    "conditions": [{"type": "Ready", "status": "True", "message": "m", "observedGeneration": 1}],
    "containerStatuses": [
        {"name": "web", "state": {"running": {"startedAt": "t"}}, "volumeMounts": [{"name": "d"}]}
    ],
}
_TARGET = {"kind": "Pod", "name": "p", "namespace": "ns", "uid": "u"}
_LB = {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}
_FIELDS: dict[str, Object] = {
    "Pod": {"spec": _POD["spec"], "status": _POD["status"]},
    "Namespace": {"status": {"phase": "Active"}},
    "ServiceAccount": {"imagePullSecrets": [{"name": "s"}], "automountServiceAccountToken": True},
    "ConfigMap": {"data": {"k": "v"}, "binaryData": {"b": "dg=="}, "immutable": False},
    "Secret": {"data": {"k": "dg=="}, "type": "Opaque", "immutable": False},
    "Service": {
        "spec": {
            "type": "LoadBalancer",
            "clusterIP": "10.96.0.7",
            "clusterIPs": ["10.96.0.7"],
            "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack",
            "selector": {"app": "a"},
            "ports": [{"name": "p", "port": 80, "protocol": "TCP", "nodePort": 30080, "targetPort": 80}],
            "externalIPs": ["192.0.2.1"],
            "sessionAffinity": "None",
        },
        "status": _LB,
    },
    "Endpoints": {"subsets": [{"addresses": [{"ip": "203.0.113.1", "targetRef": _TARGET, "nodeName": "n"}]}]},
    "EndpointSlice": {
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["203.0.113.1"], "targetRef": _TARGET, "nodeName": "n"}],
        "ports": [{"name": "p", "port": 80}],
    },
    "PersistentVolumeClaim": {
        "spec": {
            "volumeName": "v",
            "storageClassName": "c",
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
        "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}},
    },
    "Ingress": {"spec": {"ingressClassName": "a", "rules": [{"host": "a.example"}]}, "status": _LB},
    "NetworkPolicy": {
        "spec": {
            "podSelector": _SELECTOR,
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [{"podSelector": _SELECTOR, "namespaceSelector": _SELECTOR}]}],
            "egress": [{"to": [{"namespaceSelector": _SELECTOR}]}],
        }
    },
    "PodDisruptionBudget": {
        "spec": {"selector": _SELECTOR, "maxUnavailable": 1},
        "status": {"observedGeneration": 1, "desiredHealthy": 1},
    },
    "Network": {"spec": {"type": "flat"}, "status": {"phase": "Ready"}},
    "Widget": {"spec": {"size": 1}, "status": {"phase": "Ready"}},
}


def _sample(sync: KindSync) -> Object:
    kind = sync.kind.kind
    is_namespaced = sync.scope is Scope.NAMESPACED
    meta: Object = {
        "name": "a",
        "uid": "u-1",
        "resourceVersion": "1",
        "generation": 1,
        "labels": {"app": "a", "kubernetes.io/service-name": "s"},
        "annotations": {"example.com/a": "b"},
        "finalizers": ["example.com/f"],
        "ownerReferences": [{"kind": "ReplicaSet", "name": "r", "uid": "r-1", "controller": True}],
    }
    if is_namespaced:
        meta["namespace"] = "ns"
    return {"apiVersion": sync.kind.api_version, "kind": kind, "metadata": meta, **_FIELDS[kind]}


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in below:
        yield from _paths(each, (*path, key))


def _with(value: Object, path: tuple[Any, ...], other: Any) -> Object:
    found: Object = copy.deepcopy(value)
    at: Any = found
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = other
    return found


def _without(value: Object, path: tuple[Any, ...]) -> Object:
    found: Object = copy.deepcopy(value)
    at: Any = found
    for key in path[:-1]:
        at = at[key]
    del at[path[-1]]
    return found


def _view() -> FakeView:
    seen = view()
    seen.policy = PERMISSIVE
    return seen


def _below(sync: KindSync, sample: Object) -> Object:
    """The super object of the sample, as its creation leaves it."""
    key = (sample["metadata"].get("namespace", ""), "a")
    plan = sync.plan(key, Pair(sample, None), _view())
    found = [each for each in plan.actions if isinstance(each, Create)]
    assert found, plan
    (create,) = found
    body: Object = copy.deepcopy(create.body)
    body["metadata"] |= {"uid": "s-1", "resourceVersion": "2"}
    return body | ({"status": sample["status"]} if "status" in sample else {})


@pytest.mark.parametrize("kind", KINDS)
def test_a_sample_has_the_shape_of_its_kind(kind: str) -> None:
    sample = _sample(KINDS[kind])
    assert parser_of(kind)(json.dumps(sample).encode()).load() == sample
    assert _below(KINDS[kind], sample)["kind"] == kind


@pytest.mark.parametrize("kind", KINDS)
def test_no_value_of_any_field_makes_a_plan_fail(kind: str) -> None:
    sync = KINDS[kind]
    sample = _sample(sync)
    below = _below(sync, sample)
    parse = parser_of(kind)
    tried = refused = 0
    for path in _paths(sample):
        if path in (("metadata",), ("metadata", "name"), ("metadata", "namespace")):
            continue  # no object of an API server is without
        for other in VALUES:
            tried += 1
            value = _with(sample, path, other)
            try:
                tenant = parse(json.dumps(value).encode()).load()
            except (msgspec.ValidationError, msgspec.DecodeError) as error:
                refused += 1
                field, message = shapes.path_and_message(str(error))
                top = str(path[0])
                assert field.startswith(top), f"{path} = {other!r}: {field}: {message}"
                continue
            key = (tenant["metadata"].get("namespace", ""), "a")
            for found in (None, below):
                try:
                    sync.plan(key, Pair(tenant, copy.deepcopy(found)), _view())
                except Exception as error:
                    raise AssertionError(f"{kind} {path} = {other!r}, found: {found is not None}") from error
    assert refused < tried


@pytest.mark.parametrize("kind", KINDS)
def test_no_missing_field_makes_a_plan_fail(kind: str) -> None:
    sync = KINDS[kind]
    sample = _sample(sync)
    below = _below(sync, sample)
    parse = parser_of(kind)
    failed: list[str] = []
    for path in _paths(sample):
        if path in (("metadata",), ("metadata", "name"), ("metadata", "namespace")):
            continue
        try:
            tenant = parse(json.dumps(_without(sample, path)).encode()).load()
        except msgspec.ValidationError:
            continue  # its author reads so
        for found in (None, below):
            try:
                sync.plan(
                    (tenant["metadata"].get("namespace", ""), "a"),
                    Pair(tenant, copy.deepcopy(found)),
                    _view(),
                )
            except Exception as error:  # noqa: BLE001 - whatever it is
                failed.append(f"{path}, found: {found is not None}: {error!r}")
    assert failed == []


def test_a_custom_resource_may_have_anything_but_its_metadata() -> None:
    parse = parser_of("Widget")
    assert parse(b'{"metadata": {"name": "a"}, "spec": [1], "status": {"x": 1}}').load()["spec"] == [1]
    with pytest.raises(msgspec.ValidationError, match=r"metadata\.labels"):
        parse(b'{"metadata": {"name": "a", "labels": {"a": {}}}}')
