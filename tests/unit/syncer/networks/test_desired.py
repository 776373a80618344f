# SPDX-License-Identifier: Apache-2.0
"""What is done about a Network: Arktos' cases (docs/spec/resolver.md#networks), and what it left undone."""

import copy
from typing import Any

import pytest

from syncer.core.objects import Object
from syncer.core.plan import Create, Delete, Patch
from syncer.networks.desired import (
    FINALIZER,
    NetworkEvent,
    NetworkPlan,
    NetworkPods,
    Problem,
    Ref,
    failure_status,
    plan,
)
from syncer.networks.objects import NetworkSettings, covers, desired_objects

SETTINGS = NetworkSettings()
OURS = {"vcnode.io/managed-by": "vc-syncer"}
APISERVER: Object = {
    "metadata": {"name": "kubernetes", "namespace": "default"},
    "addressType": "IPv4",
    "endpoints": [{"addresses": ["192.0.2.10"], "conditions": {"ready": True}}],
    "ports": [{"name": "https", "protocol": "TCP", "port": 6443}],
}
USED = "it is deleted once no pod uses it; app/web-0 does"


def network(name: str = "blue", *, kind: str = "flat", **fields: Any) -> Object:
    """An adopted Network; `fields` are of its metadata, `status` and `ipam` are its own."""
    status, ipam = fields.pop("status", None), fields.pop("ipam", None)
    meta = {"name": name, "uid": "n-uid", "resourceVersion": "7", "labels": OURS, "finalizers": [FINALIZER]}
    spec: Object = {"type": kind}
    if ipam:
        spec["service"] = {"ipam": ipam}
    found: Object = {"metadata": meta | fields, "spec": spec}
    return found if status is None else {**found, "status": status}


def existing(name: str = "blue", *, without: str = "", address: str = "10.32.0.10") -> dict[Ref, Object]:
    """All objects of a network, as an API server has them, but for one kind."""
    found: dict[Ref, Object] = {}
    for desired in desired_objects(name, SETTINGS, APISERVER):
        body = copy.deepcopy(desired.body)
        meta = body["metadata"]
        meta["uid"] = f"{desired.kind.kind}-uid"
        if desired.kind.kind == "Service":
            body["spec"] |= {"clusterIP": address, "type": "ClusterIP"}
            for port in body["spec"]["ports"]:
                port["targetPort"] = port["port"]
        if desired.kind.kind != without:
            found[Ref(desired.kind.resource.plural, meta.get("namespace", ""), meta["name"])] = body
    return found


def shown(found: NetworkPlan) -> list[str]:
    """Actions in words."""
    words = []
    for action in found.actions:
        match action:
            case Create(_, kind, body):
                meta = body["metadata"]
                words.append(f"create {kind.kind} {meta.get('namespace', '')}/{meta['name']}")
            case Delete(_, kind, namespace, name, uid):
                words.append(f"delete {kind.kind} {namespace}/{name} {uid}")
            case Patch(_, kind, _, name, _, body):
                words.append(f"patch {kind.kind} {name} {body}")
            case _:
                raise AssertionError(action)
    return words


READY = {"phase": "Ready", "message": "", "dnsServiceIP": "10.32.0.10"}
ALL = [
    "create Service kube-system/kube-dns-blue",
    "create ServiceAccount kube-system/coredns-blue",
    "create ClusterRole /system:coredns-blue",
    "create ClusterRoleBinding /system:coredns-blue",
    "create ConfigMap kube-system/coredns-blue",
    "create Deployment kube-system/coredns-blue",
    "create Service default/kubernetes-blue",
    "create EndpointSlice default/kubernetes-blue",
]
DELETED = [
    "delete Deployment kube-system/coredns-blue Deployment-uid",
    "delete Service kube-system/kube-dns-blue Service-uid",
    "delete EndpointSlice default/kubernetes-blue EndpointSlice-uid",
    "delete Service default/kubernetes-blue Service-uid",
    "delete ConfigMap kube-system/coredns-blue ConfigMap-uid",
    "delete ClusterRoleBinding /system:coredns-blue ClusterRoleBinding-uid",
    "delete ClusterRole /system:coredns-blue ClusterRole-uid",
    "delete ServiceAccount kube-system/coredns-blue ServiceAccount-uid",
]
AT = "2026-11-25T12:00:00Z"
TERMINATING = {"phase": "Terminating", "message": ""}


@pytest.mark.parametrize(
    ("value", "found", "expected"),
    [
        # Flat, from the start to Ready.
        (
            network(labels={}, finalizers=["other"]),
            {},
            [
                "patch Network blue {'metadata': {'finalizers': ['other', 'arktos.futurewei.com/network'], "
                "'labels': {'vcnode.io/managed-by': 'vc-syncer'}}}"
            ],
        ),
        (network(), {}, ALL),
        (network(), existing(), [f"patch Network blue {{'status': {READY}}}"]),
        (network(status=READY), existing(), []),
        (network(status=READY), existing(without="Deployment"), [ALL[5]]),
        # Its Service has no address (yet).
        (
            network(),
            existing(address=""),
            [
                "patch Network blue {'status': {'phase': 'Pending', "
                "'message': 'Service kube-system/kube-dns-blue has no cluster IP'}}"
            ],
        ),
        # A provider's networks, whatever their state.
        (network(kind="mizar", labels={}, finalizers=[]), {}, []),
        (network(kind="vpc", status={"phase": "Pending"}), existing(), []),
        (network(ipam="External", labels={}, finalizers=[]), {}, []),
        (network(kind="mizar", labels={}, deletionTimestamp=AT), {}, []),
        ({"metadata": {"name": "blue"}}, {}, []),
        ({"metadata": {"name": "blue"}, "spec": {"type": "flat", "service": "x"}, "status": 1}, {}, None),
        # A name that no Service can have.
        (
            network("a" * 53),
            {},
            [
                f"patch Network {'a' * 53} {{'status': {{'phase': 'Failed', "
                "'message': 'its name is not a DNS label of at most 52 characters'}}"
            ],
        ),
    ],
)
def test_a_network_is_brought_to_ready(
    value: Object, found: dict[Ref, Object], expected: list[str] | None
) -> None:
    actions = shown(plan(value, found, SETTINGS, apiserver=APISERVER))
    if expected is None:
        assert len(actions) == 1
    else:
        assert actions == expected


@pytest.mark.parametrize(
    ("value", "found", "pods", "expected", "is_waiting"),
    [
        (
            network(deletionTimestamp=AT),
            existing(),
            None,
            [f"patch Network blue {{'status': {TERMINATING}}}"],
            True,
        ),
        (
            network(deletionTimestamp=AT),
            existing(),
            NetworkPods("app/web-0"),
            [f"patch Network blue {{'status': {{'phase': 'Terminating', 'message': '{USED}'}}}}"],
            True,
        ),
        (
            network(deletionTimestamp=AT, status={"phase": "Terminating", "message": USED}),
            existing(),
            NetworkPods("app/web-0"),
            [],
            True,
        ),
        (network(deletionTimestamp=AT, status=TERMINATING), existing(), NetworkPods(), DELETED, False),
        (
            network(deletionTimestamp=AT, status=TERMINATING, finalizers=["other", FINALIZER]),
            {},
            NetworkPods(),
            ["patch Network blue {'metadata': {'finalizers': ['other']}}"],
            False,
        ),
        # Its type was changed after it had been adopted: it ends all the same.
        (
            network(kind="vpc", deletionTimestamp=AT, status=TERMINATING),
            existing(),
            NetworkPods(),
            DELETED,
            False,
        ),
        # The finalizer was there from the start, as in Arktos' templates.
        (
            network(labels={}, deletionTimestamp=AT, status=TERMINATING),
            {},
            NetworkPods(),
            ["patch Network blue {'metadata': {'finalizers': []}}"],
            False,
        ),
        (network(deletionTimestamp=AT, finalizers=["other"]), existing(), NetworkPods(), [], False),
    ],
)
def test_a_network_ends_once_no_pod_uses_it(
    value: Object, found: dict[Ref, Object], pods: NetworkPods | None, expected: list[str], is_waiting: bool
) -> None:
    result = plan(value, found, SETTINGS, apiserver=APISERVER, pods=pods)
    assert (shown(result), result.is_waiting) == (expected, is_waiting)


def test_a_network_in_use_is_reported() -> None:
    value = network(deletionTimestamp=AT)
    found = plan(value, existing(), SETTINGS, pods=NetworkPods("app/web-0"))
    assert found.problems == (Problem(NetworkEvent.IN_USE, USED),)


def test_objects_of_others_are_used_and_never_changed() -> None:
    found = existing()
    for value in found.values():
        value["metadata"]["labels"] = {}
        value.pop("data", None)
    result = plan(network(), found, SETTINGS, apiserver=APISERVER)
    assert shown(result) == [f"patch Network blue {{'status': {READY}}}"]
    assert len(result.problems) == 8
    assert result.problems[0] == Problem(
        NetworkEvent.NAME_TAKEN,
        "Service kube-system/kube-dns-blue exists without label vcnode.io/managed-by=vc-syncer: "
        "it is used as it is",
    )
    gone = plan(network(deletionTimestamp=AT, status=TERMINATING), found, SETTINGS, pods=NetworkPods())
    assert shown(gone) == ["patch Network blue {'metadata': {'finalizers': []}}"]


def test_what_was_changed_is_repaired_but_for_the_scale() -> None:
    found = existing()
    deployment = found[Ref("deployments", "kube-system", "coredns-blue")]
    deployment["spec"]["replicas"] = 3
    deployment["spec"]["template"]["spec"]["dnsPolicy"] = "ClusterFirst"
    found[Ref("configmaps", "kube-system", "coredns-blue")]["data"]["more"] = "kept"
    result = plan(network(status=READY), found, SETTINGS, apiserver=APISERVER)
    [patch] = result.actions
    assert isinstance(patch, Patch)
    assert (patch.kind.kind, patch.uid, list(patch.body)) == ("Deployment", "Deployment-uid", ["spec"])
    assert "replicas" not in patch.body["spec"]


def test_a_network_waits_for_the_apiservers_addresses() -> None:
    result = plan(network(status=READY), existing(without="EndpointSlice"), SETTINGS)
    assert (shown(result), result.is_waiting) == ([], True)


def test_the_finalizers_are_patched_at_one_version() -> None:
    [patch] = plan(network(labels={}, finalizers=[]), {}, SETTINGS).actions
    assert isinstance(patch, Patch)
    assert (patch.uid, patch.version) == ("n-uid", "7")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (network(), ["patch Network blue {'status': {'phase': 'Failed', 'message': 'denied'}}"]),
        (network(status=READY), []),
        (network(deletionTimestamp=AT), []),
    ],
)
def test_a_refused_object_fails_the_network(value: Object, expected: list[str]) -> None:
    assert shown(NetworkPlan(failure_status(value, "denied"))) == expected


def test_the_endpoints_are_the_apiservers() -> None:
    [*_, endpoints] = desired_objects("blue", SETTINGS, APISERVER)
    assert endpoints.body == {
        "metadata": {
            "name": "kubernetes-blue",
            "namespace": "default",
            "labels": {
                "k8s-app": "kube-dns-blue",
                "arktos.futurewei.com/network": "blue",
                "vcnode.io/managed-by": "vc-syncer",
                "kubernetes.io/service-name": "kubernetes-blue",
                "endpointslice.kubernetes.io/managed-by": "vc-syncer",
            },
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["192.0.2.10"], "conditions": {"ready": True}}],
        "ports": [{"name": "https", "protocol": "TCP", "port": 6443}],
    }


def test_the_server_runs_on_its_network_and_resolves_as_its_node() -> None:
    [deployment] = [
        each for each in desired_objects("blue", SETTINGS, None) if each.kind.kind == "Deployment"
    ]
    template = deployment.body["spec"]["template"]
    assert template["metadata"]["labels"] == {
        "k8s-app": "kube-dns-blue",
        "arktos.futurewei.com/network": "blue",
        "vcnode.io/managed-by": "vc-syncer",
    }
    assert template["spec"]["dnsPolicy"] == "Default"
    assert template["spec"]["containers"][0]["image"] == "registry.k8s.io/coredns/coredns:v1.12.4"


@pytest.mark.parametrize(
    ("actual", "desired", "expected"),
    [
        ({"a": 1, "b": 2}, {"a": 1}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({"a": [{"b": 1, "c": 2}]}, {"a": [{"b": 1}]}, True),
        ({"a": [{"b": 1}, {"b": 2}]}, {"a": [{"b": 1}]}, False),
        ({"a": None}, {"a": []}, False),
        ([], {}, False),
        (None, [], False),
    ],
)
def test_defaults_of_the_server_count_as_equal(actual: Any, desired: Any, expected: bool) -> None:
    assert covers(actual, desired) is expected
