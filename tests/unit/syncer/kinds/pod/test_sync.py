# SPDX-License-Identifier: Apache-2.0
"""The life of a pod on both sides (reference: the tables of upstream's pod controllers and patrol)."""

import copy
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncer.core.objects import Object
from syncer.core.plan import NOTHING, Conflict, Create, Patch, Side, Wait
from syncer.core.view import SyncSettings
from syncer.kinds.pod.sync import SYNC
from syncer.kinds.table import DEFAULT
from tenancy import keys
from tests.unit.syncer.kinds.pod.pods import (
    API_ADDRESS,
    API_SERVICE,
    DNS_ADDRESS,
    KEY,
    SUPER_NAMESPACE,
    SUPER_UID,
    UID,
    Clusters,
    bound,
    brief,
    deleting,
    owner_annotations,
    plan,
    pod,
    super_pod,
    view,
)

RUNNING = {
    "phase": "Running",
    "qosClass": "BestEffort",
    "conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}],
    "podIP": "10.1.0.1",
    "podIPs": [{"ip": "10.1.0.1"}],
    "containerStatuses": [{"name": "c", "ready": True, "image": "app:1"}],
}
API_VARIABLES = [
    {"name": "KUBERNETES_PORT", "value": "tcp://10.0.0.1:443"},
    {"name": "KUBERNETES_PORT_443_TCP", "value": "tcp://10.0.0.1:443"},
    {"name": "KUBERNETES_PORT_443_TCP_ADDR", "value": "10.0.0.1"},
    {"name": "KUBERNETES_PORT_443_TCP_PORT", "value": "443"},
    {"name": "KUBERNETES_PORT_443_TCP_PROTO", "value": "tcp"},
    {"name": "KUBERNETES_SERVICE_HOST", "value": "kubernetes"},
    {"name": "KUBERNETES_SERVICE_PORT", "value": "443"},
    {"name": "KUBERNETES_SERVICE_PORT_HTTPS", "value": "443"},
]


def running(value: Object) -> Object:
    found = copy.deepcopy(value)
    found["spec"]["nodeName"] = "n1"
    found["status"] = copy.deepcopy(RUNNING)
    return found


def of_upstream(value: Object) -> Object:
    """A super pod without what upstream's syncer does not write."""
    found = copy.deepcopy(value)
    del found["metadata"]["annotations"][keys.CONTAINERS]
    return found


def test_pods_are_synced_without_being_named() -> None:
    assert SYNC in DEFAULT


def test_a_pod_goes_down_whole() -> None:
    found = plan(pod())
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "p",
            "namespace": SUPER_NAMESPACE,
            "labels": {keys.CLUSTER: KEY, keys.VC_NAME: "tenant-00", keys.VC_NAMESPACE: "vcs"},
            "annotations": owner_annotations(),
        },
        "spec": {
            "containers": [{"name": "c", "image": "app:1", "env": API_VARIABLES}],
            "dnsPolicy": "None",
            "dnsConfig": {
                "nameservers": [DNS_ADDRESS],
                "searches": ["plain.svc.cluster.local", "svc.cluster.local", "cluster.local"],
                "options": [{"name": "ndots", "value": "5"}],
            },
            "serviceAccountName": "default",
            "enableServiceLinks": True,
            "hostAliases": [
                {
                    "ip": API_ADDRESS,
                    "hostnames": ["kubernetes", "kubernetes.default", "kubernetes.default.svc"],
                }
            ],
            "automountServiceAccountToken": False,
        },
    }
    assert found.actions == (Create(Side.SUPER, SYNC.kind, body),)
    assert (found.refusals, found.wait, found.conflict) == ((), None, None)


@pytest.mark.parametrize(
    ("tenant", "expected"),
    [
        pytest.param(deleting(pod(), 30), [("delete", "tenant", 0)], id="deleting and never made"),
        pytest.param(deleting(bound(pod()), 30), [("delete", "tenant", 0)], id="deleting, bound, gone"),
        pytest.param(bound(pod()), [("delete", "tenant", 0)], id="bound and gone, as after an eviction"),
        pytest.param(pod(), [("create", "super")], id="unbound and missing"),
        pytest.param(pod(status={"phase": "Failed"}), [], id="ended before it was bound"),
        pytest.param(running(pod()), [("delete", "tenant", 0)], id="ran and is gone"),
        pytest.param(
            pod({"nodeName": "n1"}, status={"phase": "Running"}),
            [("delete", "tenant", 0)],
            id="ran, no conditions",
        ),
    ],
)
def test_without_a_super_pod(tenant: Object, expected: list[object]) -> None:
    assert brief(plan(tenant)) == expected


def _kept(tenant: Object) -> Object:
    """By a Job, until it has seen the pod's end."""
    tenant["metadata"]["finalizers"] = ["batch.kubernetes.io/job-tracking"]
    return tenant


def test_a_pod_that_is_kept_for_its_end_gets_one() -> None:
    """`kubectl delete pod --force` of a Job's pod takes the super pod at once, without a last status."""
    own = _kept(deleting(running(pod()), 0))
    (shown,) = plan(own).up.actions
    assert isinstance(shown, Patch)
    status = own["status"] | shown.body["status"]
    assert (shown.side, shown.subresource, status["phase"]) == (Side.TENANT, "status", "Failed")
    assert [each["state"]["terminated"]["exitCode"] for each in status["containerStatuses"]] == [137]
    # Then it is for the Job to let it go.
    assert plan({**own, "status": status}) == NOTHING


def test_a_pod_that_is_kept_and_was_done_has_succeeded() -> None:
    own = _kept(deleting(running(pod()), 30))
    own["status"]["containerStatuses"][0]["state"] = {"terminated": {"exitCode": 0}}
    assert brief(plan(own)) == [
        ("patch", "tenant", "status", {"status": {"phase": "Succeeded"}}),
        ("delete", "tenant", 0),
    ]


def test_a_pod_that_is_kept_and_never_ran_has_failed() -> None:
    assert brief(plan(_kept(deleting(pod(), 0)))) == [
        ("patch", "tenant", "status", {"status": {"phase": "Failed"}})
    ]


@pytest.mark.parametrize(
    ("tenant", "found", "expected"),
    [
        pytest.param(None, super_pod(pod()), [("delete", "super", 30)], id="tenant's is gone"),
        pytest.param(None, deleting(super_pod(pod()), 300), [("delete", "super", 30)], id="gone by force"),
        pytest.param(None, deleting(super_pod(pod()), 5), [], id="tenant's is gone, already deleting"),
        pytest.param(
            deleting(running(pod()), 7), running(super_pod(pod())), [("delete", "super", 7)], id="deleting"
        ),
        pytest.param(
            deleting(running(pod()), 7), deleting(running(super_pod(pod())), 7), [], id="both, same grace"
        ),
        pytest.param(
            deleting(running(pod()), 30),
            deleting(running(super_pod(pod())), 5),
            [("delete", "tenant", 5)],
            id="both, super's is shorter",
        ),
        pytest.param(
            deleting(running(pod()), 1),
            deleting(running(super_pod(pod())), 30),
            [("delete", "super", 1)],
            id="both, tenant's is shorter",
        ),
        pytest.param(
            deleting(running(pod()), 30),
            deleting(running(super_pod(pod())), 0),
            [],
            id="both, super's is about to go",
        ),
        pytest.param(
            running(pod()),
            deleting(running(super_pod(pod())), 12),
            [("delete", "tenant", 12)],
            id="deleted in super, as by an eviction",
        ),
        pytest.param(
            running(pod()),
            {**running(super_pod(pod())), "spec": {**super_pod(pod())["spec"], "nodeName": "n2"}},
            [("delete", "tenant", None)],
            id="bound to different nodes",
        ),
        pytest.param(pod(uid="33333333-again"), super_pod(pod()), [("delete", "super", 30)], id="made again"),
        pytest.param(pod(uid="33333333-again"), deleting(super_pod(pod()), 5), [], id="made again, waits"),
        pytest.param(running(pod()), running(super_pod(pod())), [], id="both agree"),
        pytest.param(running(pod()), of_upstream(running(super_pod(pod()))), [], id="upstream's is adopted"),
    ],
)
def test_with_a_super_pod(tenant: Object | None, found: Object, expected: list[object]) -> None:
    assert brief(plan(tenant, found)) == expected


def test_the_last_status_goes_up_before_the_end() -> None:
    found = running(super_pod(pod()))
    found["status"]["phase"] = "Failed"
    assert brief(plan(deleting(running(pod()), 7), deleting(found, 7))) == [
        ("patch", "tenant", "status", {"status": {"phase": "Failed"}})
    ]


def test_a_foreign_pod_stays() -> None:
    foreign = super_pod(pod())
    foreign["metadata"]["annotations"] = {}
    conflict = Conflict(f"Pod {SUPER_NAMESPACE}/p is not the tenant's")
    assert plan(None, foreign) == NOTHING
    assert plan(pod(), foreign).conflict == conflict
    assert plan(pod(), foreign).actions == ()
    # One that ran is not let go: the foreign pod may be it.
    assert plan(deleting(running(pod()), 7), foreign).conflict == conflict
    assert brief(plan(deleting(pod(), 7), foreign)) == [("delete", "tenant", 0)]


def test_a_bound_pod_is_bound_in_the_tenant() -> None:
    found = running(super_pod(pod()))
    assert brief(plan(pod(), found)) == [
        ("bind", "n1"),
        (
            "patch",
            "tenant",
            "status",
            {"status": {key: value for key, value in RUNNING.items() if key != "qosClass"}},
        ),
    ]


def test_an_unschedulable_pod_says_so_and_is_not_bound() -> None:
    found = super_pod(pod())
    found["status"] |= {
        "conditions": [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": f"0/3 nodes are available: claim {SUPER_NAMESPACE}/data is not bound",
            }
        ],
        "nominatedNodeName": "n3",
    }
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/3 nodes are available: claim plain/data is not bound",
    }
    assert brief(plan(pod(), found)) == [
        ("patch", "tenant", "status", {"status": {"conditions": [condition]}})
    ]


def test_a_pod_that_its_gates_hold_is_not_bound() -> None:
    """Upstream lost the gates, so its super pods run while the tenant's wait."""
    tenant = pod({"schedulingGates": [{"name": "example.com/g"}]})
    found = of_upstream(running(super_pod(tenant)))
    del found["spec"]["schedulingGates"]
    del found["metadata"]["annotations"][keys.SCHEDULING_GATES]
    assert [each[0:3] for each in brief(plan(tenant, found))] == [("patch", "tenant", "status")]


def test_a_node_that_the_tenant_names_is_refused() -> None:
    found = plan(pod({"nodeName": "n1"}))
    assert [each.path for each in found.refusals] == ["spec.nodeName"]
    assert found.actions == ()


@pytest.mark.parametrize(
    ("seen", "wait"),
    [
        pytest.param(
            view(unknown=frozenset({"plain"})),
            Wait("NamespaceNotSynced", "namespace plain is not in the super cluster yet"),
            id="namespace",
        ),
        pytest.param(
            view(unknown=frozenset({"default"})),
            Wait("ServiceNotReady", "Service default/kubernetes has no super cluster IP yet"),
            id="API server",
        ),
    ],
)
def test_what_a_pod_waits_for(seen: object, wait: Wait) -> None:
    found = plan(pod(), None, seen)  # type: ignore[arg-type]
    assert (found.wait, found.actions) == (wait, ())


@pytest.mark.parametrize("first", [Side.TENANT, Side.SUPER])
@pytest.mark.parametrize("second", [None, Side.TENANT, Side.SUPER])
@pytest.mark.parametrize("graces", [(30, 30), (30, 5), (5, 30)])
def test_deletions_of_either_side_end(first: Side, second: Side | None, graces: tuple[int, int]) -> None:
    """Whoever deletes, and shortens the grace period later: both are deleting, then the kubelet ends it."""
    clusters = Clusters(running(pod()), running(super_pod(pod())))
    found = clusters.pods[first]
    assert found is not None
    clusters.pods[first] = deleting(found, graces[0])
    clusters.settle(view())
    if second is not None and graces[1] < graces[0]:
        found = clusters.pods[second]
        assert found is not None
        clusters.pods[second] = deleting(found, graces[1])
        clusters.settle(view())
    for each in clusters.pods.values():
        assert each is not None
        shorter = graces[1] if second is not None and graces[1] < graces[0] else graces[0]
        assert each["metadata"]["deletionGracePeriodSeconds"] == shorter
    clusters.pods[Side.SUPER] = None
    clusters.settle(view())
    assert clusters.pods == {Side.TENANT: None, Side.SUPER: None}


def test_transparent_metadata_goes_up() -> None:
    found = running(super_pod(pod()))
    found["metadata"]["labels"]["transparent.example.com/up"] = "1"
    found["metadata"]["annotations"]["transparency.tenancy.x-k8s.io/z"] = "9"
    assert brief(plan(running(pod()), found)) == [
        (
            "patch",
            "tenant",
            "",
            {
                "metadata": {
                    "labels": {"transparent.example.com/up": "1"},
                    "annotations": {"transparency.tenancy.x-k8s.io/z": "9"},
                }
            },
        )
    ]


def test_statuses_with_readiness_gates_are_not_overwritten() -> None:
    """The patch replaces the list of conditions: it must not undo one that the tenant writes just now."""
    spec = {"readinessGates": [{"conditionType": "example.com/ready"}]}
    tenant, found = pod(spec), running(super_pod(pod(spec)))
    assert brief(plan(tenant, found)) == [("bind", "n1")]
    assert plan(tenant, found).is_partial
    (action,) = plan(bound(tenant), found).actions
    assert isinstance(action, Patch)
    assert (action.subresource, action.version) == ("status", "5")


def test_a_status_waits_for_metadata_that_goes_up_before_it() -> None:
    spec = {"readinessGates": [{"conditionType": "example.com/ready"}]}
    found = running(super_pod(pod(spec)))
    found["metadata"]["labels"]["transparent.example.com/up"] = "1"
    first = plan(bound(pod(spec)), found)
    assert [each[0:3] for each in brief(first)] == [("patch", "tenant", "")]
    assert first.is_partial


@pytest.mark.parametrize(
    ("spec", "is_partial"),
    [
        ({}, False),
        ({"ephemeralContainers": [{"name": "dbg", "image": "debug:1"}]}, True),
        ({"readinessGates": [{"conditionType": "example.com/ready"}]}, True),
    ],
)
def test_what_follows_a_creation_is_planned(spec: Object, is_partial: bool) -> None:
    assert plan(pod(spec)).is_partial is is_partial


KEYS = st.sampled_from(
    [
        "app",
        "example.com/a",
        "app.kubernetes.io/name",
        "notk8s.io/a",
        "batch.kubernetes.io/job-name",
        "opaque.example.com/h",
        "transparent.example.com/s",
        "tenancy.x-k8s.io/cluster",
        "tenancy.x-k8s.io/uid",
        "transparency.tenancy.x-k8s.io/z",
        "vcnode.io/containers",
        "vcnode.io/tenant-labels",
        "vcnode.io/scheduling-gates",
        "tenant-label.vcnode.io/app",
        "tenant-metadata.vcnode.io/labels.app",
        "arktos.futurewei.com/network-readiness",
        "required-plugins.noderesource.dev",
        "required-plugins.noderesource.dev/container.c",
    ]
)
METADATA = st.dictionaries(KEYS, st.just("forged"), max_size=6)
PATHS = st.one_of(
    st.sampled_from(["metadata.namespace", "metadata.uid", "metadata.name"]),
    st.builds("metadata.{}['{}']".format, st.sampled_from(["labels", "annotations"]), KEYS),
)
VOLUME_PATHS = PATHS | st.sampled_from(["metadata.labels", "metadata.annotations"])


@st.composite
def specs(draw: st.DrawFn) -> Object:
    """Specs with all that is translated."""
    references = draw(st.lists(PATHS, max_size=3))
    env = [
        {"name": f"E{index}", "valueFrom": {"fieldRef": {"fieldPath": path}}}
        for index, path in enumerate(references)
    ]
    items = [
        {"path": f"f{index}", "fieldRef": {"fieldPath": path}}
        for index, path in enumerate(draw(st.lists(VOLUME_PATHS, max_size=4)))
    ]
    selector = {"matchLabels": draw(METADATA)}
    term = {
        "labelSelector": draw(st.sampled_from([None, selector])),
        "topologyKey": "zone",
        "namespaces": draw(st.lists(st.sampled_from(["plain", "other"]), max_size=2)),
        "namespaceSelector": draw(st.sampled_from([None, {}, selector])),
    }
    spec: Object = {
        "containers": [{"name": "c", "image": draw(st.sampled_from(["app:1", "app:2"])), "env": env}],
        "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}},
        "volumes": [
            {"name": "d", "downwardAPI": {"items": items}},
            {
                "name": "kube-api-access-x",
                "projected": {
                    "sources": [{"serviceAccountToken": {"path": "token"}}] * draw(st.integers(0, 2))
                },
            },
        ],
    }
    if draw(st.booleans()):
        spec["schedulingGates"] = [{"name": "example.com/g"}]
    if draw(st.booleans()):
        spec["readinessGates"] = [{"conditionType": draw(st.sampled_from(["example.com/r", "Ready"]))}]
    if draw(st.booleans()):
        spec["ephemeralContainers"] = [{"name": "dbg", "image": "debug:1"}]
    if draw(st.booleans()):
        spec["tolerations"] = [{"key": draw(st.sampled_from(["a", "b"])), "operator": "Exists"}]
    if draw(st.booleans()):
        spec["activeDeadlineSeconds"] = draw(st.integers(1, 9))
    return spec


@st.composite
def statuses(draw: st.DrawFn) -> Object:
    types = st.sampled_from(["Ready", "PodScheduled", "example.com/r", "super.example.com/g", "vcnode.io/x"])
    messages = st.sampled_from(
        ["", f"in {SUPER_NAMESPACE}/p of {KEY}", f"pods/{SUPER_UID}/x", f"{KEY}-other/q"]
    )
    conditions = [
        {
            "type": each,
            "status": "True",
            "message": draw(messages),
            "observedGeneration": draw(st.integers(1, 3)),
        }
        for each in draw(st.lists(types, unique=True))
    ]
    return {
        "phase": draw(st.sampled_from(["Pending", "Running", "Failed"])),
        "message": draw(messages),
        "conditions": conditions,
        "qosClass": draw(st.sampled_from(["BestEffort", "Burstable"])),
        "containerStatuses": [
            {"name": name, "state": {"waiting": {"message": draw(messages)}}} for name in ("c", "injected")
        ],
        "observedGeneration": draw(st.integers(1, 3)),
    }


@settings(max_examples=100)
@given(specs(), specs(), METADATA, METADATA, METADATA, statuses(), st.booleans())
def test_both_sides_agree_at_rest_and_nothing_leaks(
    spec: Object,
    later: Object,
    labels: dict[str, str],
    annotations: dict[str, str],
    more: dict[str, str],
    status: Object,
    has_plugins: bool,
) -> None:
    """After any change: plans end, nothing of the super cluster goes up, nothing forged goes down."""
    seen = view(settings=SyncSettings(required_plugins=("vcnode",) if has_plugins else ()))
    clusters = Clusters(pod(spec, labels=labels, annotations=annotations))
    done = clusters.settle(seen)
    assert clusters.plan(seen).actions == ()
    found, tenant = clusters.pods[Side.SUPER], clusters.pods[Side.TENANT]
    assert found is not None
    assert tenant is not None
    check_super_pod(found)
    found["status"] = copy.deepcopy(status)
    if not found["spec"].get("schedulingGates"):
        found["spec"]["nodeName"] = "n1"
    found["spec"]["containers"].append({"name": "injected", "image": "mesh:1"})
    done += clusters.settle(seen)
    tenant = clusters.pods[Side.TENANT]
    assert tenant is not None
    assert tenant["spec"].get("nodeName") == found["spec"].get("nodeName")
    tenant["metadata"]["labels"] = more
    mutable = ("schedulingGates", "tolerations", "ephemeralContainers", "activeDeadlineSeconds")
    tenant["spec"] |= {key: later[key] for key in mutable if key in later and key != "schedulingGates"}
    tenant["spec"].pop("schedulingGates", None)
    tenant["spec"]["containers"][0]["image"] = later["containers"][0]["image"]
    done += clusters.settle(seen)
    found, tenant = clusters.pods[Side.SUPER], clusters.pods[Side.TENANT]
    assert found is not None
    assert tenant is not None
    check_super_pod(found)
    assert "schedulingGates" not in found["spec"] or found["spec"]["schedulingGates"] == []
    assert found["spec"]["containers"][0]["image"] == tenant["spec"]["containers"][0]["image"]
    upward = json.dumps([each.body for each in done if isinstance(each, Patch) and each.side is Side.TENANT])
    assert not any(word in upward for word in (SUPER_NAMESPACE, KEY, SUPER_UID, "injected"))


# Values of the tenant, for its own volumes, under keys that are ours.
MOUNTED = (keys.MOUNTED_LABELS, keys.MOUNTED_ANNOTATIONS)


def check_super_pod(found: Object) -> None:
    meta = found["metadata"]
    own = {keys.CLUSTER: KEY, keys.UID: UID, keys.NAMESPACE: "plain"}
    assert own.items() <= meta["annotations"].items()
    assert meta["labels"][keys.CLUSTER] == KEY
    for key, value in [*meta["labels"].items(), *meta["annotations"].items()]:
        if key not in MOUNTED and not key.startswith(keys.MOUNTED_METADATA_PREFIX):
            assert not (value == "forged" and key.startswith(("vcnode.io/", "tenancy.", "transparency."))), (
                key
            )
            assert not key.startswith(("opaque.example.com", "app.kubernetes.io")), key
    assert not {keys.NETWORK_READINESS, f"{keys.REQUIRED_PLUGINS}/container.c"} & meta["annotations"].keys()
    assert meta["annotations"].get(keys.REQUIRED_PLUGINS) in (None, "[vcnode]")
    text = json.dumps(found["spec"])
    assert "serviceAccountToken" not in text
    assert '"fieldPath": "metadata.namespace"' not in text
    assert '"fieldPath": "metadata.uid"' not in text
    assert API_SERVICE["spec"]["clusterIP"] in text


def test_a_binding_comes_without_a_status_of_its_own() -> None:
    """A binding sets PodScheduled in the tenant too, with its own time: one request a pod less."""
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:01Z"}
    found = super_pod(pod(), node="n1")
    found["status"] = {"phase": "Pending", "conditions": [scheduled]}
    tenant = pod(status={"phase": "Pending"})
    assert brief(plan(tenant, copy.deepcopy(found))) == [("bind", "n1")]
    own = scheduled | {"lastTransitionTime": "2026-01-01T00:00:02Z"}
    after = bound(pod(status={"phase": "Pending", "conditions": [own]}))
    after["status"] = {"phase": "Pending", "conditions": [own]}
    assert brief(plan(after, found)) == []


def test_what_is_no_part_of_a_binding_comes_after_it() -> None:
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:01Z"}
    found = super_pod(pod(), node="n1")
    found["status"] = {"phase": "Pending", "conditions": [scheduled, {"type": "DisruptionTarget"}]}
    assert brief(plan(pod(status={"phase": "Pending"}), copy.deepcopy(found))) == [("bind", "n1")]
    after = bound(pod(status={"phase": "Pending", "conditions": [scheduled]}))
    after["status"] = {"phase": "Pending", "conditions": [scheduled]}
    assert brief(plan(after, found)) == [
        ("patch", "tenant", "status", {"status": {"conditions": found["status"]["conditions"]}})
    ]
