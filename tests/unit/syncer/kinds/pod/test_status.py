# SPDX-License-Identifier: Apache-2.0
"""Statuses on their way up (upstream's TestCheckUWPodStatusEquality, and fields that it lost)."""

import pytest

from devkit.syncer.fake_view import FakeView
from syncer.core.objects import Object
from syncer.core.plan import Side
from syncer.core.unknown import Unknown
from syncer.core.view import SyncSettings
from syncer.kinds.pod.status import tenant_status
from tenancy import keys
from tests.unit.syncer.kinds.pod.pods import (
    KEY,
    SUPER_NAMESPACE,
    SUPER_UID,
    bound,
    brief,
    plan,
    pod,
    super_pod,
)

READY = {"type": "Ready", "status": "True"}
NOT_READY = {"type": "Ready", "status": "False"}
GATE = {"type": "example.com/r", "status": "True"}
OTHER_GATE = {"type": "example.com/r", "status": "False"}
SUPER_GATE = {"type": "super.example.com/g", "status": "True"}
EVICTED = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
PREEMPTED = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
OWN = {"type": "vcnode.io/Synced", "status": "True"}
GATES = {"readinessGates": [{"conditionType": "example.com/r"}]}


def patch_of(tenant: Object, found: Object) -> Object | None:
    patches = [each for each in brief(plan(tenant, found)) if each[1:3] == ("tenant", "status")]
    assert len(patches) <= 1
    status: Object | None = patches[0][3]["status"] if patches else None
    return status


def pair(
    own: Object, actual: Object, spec: Object | None = None, super_spec: Object | None = None
) -> tuple[Object, Object]:
    tenant = bound(pod(spec))
    tenant["status"] = own
    found = super_pod(pod(spec), node="n1")
    found["spec"] |= super_spec or {}
    found["status"] = actual
    return tenant, found


@pytest.mark.parametrize(
    ("own", "actual", "conditions"),
    [
        pytest.param([READY], [READY], None, id="equal"),
        pytest.param([], [], None, id="none"),
        pytest.param([NOT_READY], [READY], [READY], id="differ"),
        pytest.param([GATE, READY], [READY], None, id="a gate only in the tenant"),
        pytest.param([GATE, NOT_READY], [READY], [READY, GATE], id="a gate is kept"),
        pytest.param([GATE], [OTHER_GATE], None, id="a differing gate is kept"),
        pytest.param([], [READY, SUPER_GATE], [READY], id="a gate of super is dropped"),
        pytest.param([OWN, READY], [READY], None, id="the syncer's own is kept"),
        pytest.param([], [READY, {**OWN}], [READY], id="the super cluster's own is dropped"),
        pytest.param(
            [EVICTED, READY], [NOT_READY], [NOT_READY, EVICTED], id="an eviction in the tenant is kept"
        ),
        pytest.param([EVICTED], [PREEMPTED], [PREEMPTED], id="the super cluster's disruption goes up"),
        pytest.param([READY, GATE], [GATE, READY], None, id="in another order"),
    ],
)
def test_conditions(own: list[Object], actual: list[Object], conditions: list[Object] | None) -> None:
    gates = [*GATES["readinessGates"], {"conditionType": "super.example.com/g"}]
    tenant, found = pair({"conditions": own}, {"conditions": actual}, GATES, {"readinessGates": gates})
    assert patch_of(tenant, found) == (None if conditions is None else {"conditions": conditions})


@pytest.mark.parametrize(
    "status",
    [
        {"phase": "Succeeded", "message": "done", "reason": "Completed"},
        {
            "hostIP": "192.0.2.1",
            "hostIPs": [{"ip": "192.0.2.1"}],
            "podIP": "10.1.0.1",
            "podIPs": [{"ip": "10.1.0.1"}],
        },
        {"resize": "InProgress", "startTime": "2024-01-01T00:00:00Z"},
        {
            "containerStatuses": [
                {
                    "name": "c",
                    "allocatedResources": {"cpu": "1"},
                    "resources": {"requests": {"cpu": "1"}},
                    "user": {"linux": {"uid": 1, "gid": 1}},
                    "state": {"running": {"startedAt": "2024-01-01T00:00:00Z"}},
                }
            ]
        },
    ],
)
def test_all_fields_go_up(status: Object) -> None:
    assert patch_of(*pair({}, status)) == status
    assert patch_of(*pair(status, status)) is None


def test_what_is_not_known_stays_below() -> None:
    """Of a newer Kubernetes, and of what is the super cluster's own."""
    claims = [{"name": "gpu", "resourceClaimName": "vcs-1f00ba-rival-gpu"}]
    actual = {
        "phase": "Running",
        "someNewField": {"a": 1},
        "nominatedNodeName": "n2",
        "resourceClaimStatuses": claims,
        "conditions": [READY, {"type": "operator.example/audit", "status": "True"}],
        "containerStatuses": [{"name": "c", "someNewField": {"a": [1]}}],
    }
    expected = {"phase": "Running", "conditions": [READY], "containerStatuses": [{"name": "c"}]}
    assert patch_of(*pair({}, actual)) == expected


@pytest.mark.parametrize(
    ("own", "image", "image_id", "expected"),
    [
        ("app", "docker.io/library/app:latest", "docker.io/library/app@sha256:1", None),
        ("r.example/team/app:v1", "r.example/team/app:v1", "r.example/team/app@sha256:1", None),
        ("r.example:5000/app@sha256:1", "sha256:1", "r.example:5000/app@sha256:1", None),
        ("app", "app", "sha256:" + "0" * 64, None),
        ("app", "app", "docker-pullable://app@sha256:1", None),
        (
            "r.example/team/app:v1",
            "rival.example/private/shop:v7",
            "rival.example/private/shop@sha256:1",
            ("r.example/team/app:v1", "r.example/team/app@sha256:1"),
        ),
        (
            "app:v1",
            "docker.io/rival/app:v1",
            "x://rival/app@sha256:1",
            ("app:v1", "x://docker.io/library/app@sha256:1"),
        ),
        ("app", "app", "/var/lib/images/rival", ("app", "")),
    ],
)
def test_images_have_the_tenants_names(
    own: str, image: str, image_id: str, expected: tuple[str, str] | None
) -> None:
    """A runtime calls an image by the first name under which anybody pulled it."""
    spec = {"containers": [{"name": "c", "image": own}]}
    actual = {"containerStatuses": [{"name": "c", "image": image, "imageID": image_id}]}
    (shown,) = (patch_of(*pair({}, actual, spec)) or {})["containerStatuses"]
    assert (shown["image"], shown["imageID"]) == (expected or (image, image_id))


def test_an_image_that_goes_is_shown_until_it_is_gone() -> None:
    """After a change of the tag the kubelet's status has the old one for a while."""
    spec = {"containers": [{"name": "c", "image": "r.example/app:v2"}]}
    actual = {"containerStatuses": [{"name": "c", "image": "r.example/app:v1"}]}
    assert patch_of(*pair({}, actual, spec)) == actual


def test_the_host_is_the_vnode_where_that_has_another_address() -> None:
    tenant, found = pair({}, {"hostIP": "10.0.0.7", "hostIPs": [{"ip": "10.0.0.7"}]})
    hides = SyncSettings(hides_nodes=True)
    meta = {"name": "n1", "labels": {keys.VIRTUAL_NODE: "true"}}
    vnode = {
        "kind": "Node",
        "metadata": meta | {"annotations": {keys.VNODE_OF: "u"}},
        "status": {"addresses": [{"type": "InternalIP", "address": "10.96.0.9"}]},
    }
    for nodes, status in (
        ([vnode], {"hostIP": "10.96.0.9", "hostIPs": [{"ip": "10.96.0.9"}]}),
        ([vnode | {"metadata": meta}], {}),
        ([], {}),
    ):
        seen = FakeView(settings=hides, tenant_objects=nodes)
        assert tenant_status(tenant, found, seen, in_sync=True) == {**status, "conditions": []}


def test_the_host_of_a_vnode_that_cannot_be_read_stays() -> None:
    """It is not known to have no address; that of the machine is shown as little as before."""
    below = {"hostIP": "10.0.0.7", "hostIPs": [{"ip": "10.0.0.7"}]}
    shown = {"hostIP": "10.96.0.9", "hostIPs": [{"ip": "10.96.0.9"}]}
    unreadable = frozenset({Unknown(Side.TENANT, "Node", "", "n1", "too large")})
    view = FakeView(settings=SyncSettings(hides_nodes=True), unreadable=unreadable)
    for own in (shown, {}):
        tenant, found = pair(own, below)
        assert tenant_status(tenant, found, view, in_sync=True) == {**own, "conditions": []}


def test_what_is_gone_in_super_goes_in_the_tenant() -> None:
    own = {"phase": "Pending", "nominatedNodeName": "n2", "qosClass": "BestEffort"}
    assert patch_of(*pair(own, {"phase": "Running"})) == {"phase": "Running", "nominatedNodeName": None}


def test_the_class_of_service_is_immutable() -> None:
    """A sidecar of the super cluster can change it there."""
    assert patch_of(*pair({"qosClass": "Guaranteed"}, {"qosClass": "Burstable"})) is None
    assert patch_of(*pair({}, {"qosClass": "Burstable"})) == {"qosClass": "Burstable"}


def test_injected_containers_and_mounts_stay_below() -> None:
    spec = {
        "initContainers": [{"name": "i", "image": "i:1"}],
        "volumes": [{"name": "own", "emptyDir": {}}],
    }
    mounts = [{"name": "own", "mountPath": "/own"}, {"name": "mesh-certs", "mountPath": "/certs"}]
    actual = {
        "initContainerStatuses": [{"name": "i"}, {"name": "mesh-init"}],
        "containerStatuses": [{"name": "mesh"}, {"name": "c", "volumeMounts": mounts}],
        "ephemeralContainerStatuses": [{"name": "super-debug"}],
    }
    assert patch_of(*pair({}, actual, spec)) == {
        "initContainerStatuses": [{"name": "i"}],
        "containerStatuses": [{"name": "c", "volumeMounts": mounts[:1]}],
    }


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("plain", "plain"),
        (f'secret "{SUPER_NAMESPACE}/s" not found', 'secret "plain/s" not found'),
        (f"namespace {SUPER_NAMESPACE} is full", "namespace plain is full"),
        (f"claims of {KEY}-other/x", "claims of other/x"),
        (f"quota of {KEY}", "quota of "),
        (f"/var/lib/kubelet/pods/{SUPER_UID}/volumes", "/var/lib/kubelet/pods/11111111-tenant/volumes"),
    ],
)
def test_messages_have_the_tenants_names(message: str, expected: str) -> None:
    def status(text: str) -> Object:
        return {
            "message": text,
            "conditions": [{**NOT_READY, "message": text}],
            "containerStatuses": [
                {"name": "c", "containerID": KEY, "state": {"waiting": {"reason": "Failed", "message": text}}}
            ],
        }

    assert patch_of(*pair({}, status(message))) == status(expected)


@pytest.mark.parametrize(
    ("generation", "super_generation", "seen", "own", "expected"),
    [
        pytest.param(4, 2, 2, None, 4, id="in sync"),
        pytest.param(4, 2, 1, 3, 3, id="not yet observed"),
        pytest.param(4, 2, 1, None, None, id="not yet observed, none before"),
    ],
)
def test_generations_are_the_tenants(
    generation: int, super_generation: int, seen: int, own: int | None, expected: int | None
) -> None:
    def status(value: int | None, **others: object) -> Object:
        observed: Object = {} if value is None else {"observedGeneration": value}
        return {**observed, "conditions": [{**READY, **observed}], **others}

    tenant, found = pair(status(own), status(seen, phase="Running"))
    tenant["metadata"]["generation"], found["metadata"]["generation"] = generation, super_generation
    changes = patch_of(tenant, found)
    assert {**tenant["status"], **(changes or {})} == status(expected, phase="Running")


def test_a_change_on_its_way_down_is_not_observed() -> None:
    tenant, found = pair({"observedGeneration": 1}, {"observedGeneration": 1})
    tenant["metadata"]["generation"] = 2
    tenant["spec"]["containers"][0]["image"] = "app:2"
    assert patch_of(tenant, found) is None
