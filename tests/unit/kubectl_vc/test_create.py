# SPDX-License-Identifier: Apache-2.0
"""`kubectl vc create` and `get`, with whole output."""

from collections.abc import Callable

import pytest

from devkit.fake_kubectl import FakeKubectl
from kubectl_vc.core.faults import FaultReason, RequestFault
from kubectl_vc.core.view import CLUSTER_VERSIONS, VIRTUAL_CLUSTERS, Object
from kubectl_vc.create import create, get
from tests.unit.kubectl_vc.invocations import Ended, call, condition, running

CREATED = "virtualcluster.tenancy.x-k8s.io/acme created in namespace tenants\n"
WAITS = "waiting for VirtualCluster tenants/acme to become Ready, at most 0:05:00\n"


@pytest.fixture
def api() -> FakeKubectl:
    return FakeKubectl({CLUSTER_VERSIONS: [{"metadata": {"name": "v1.34"}}]})


def becomes(*conditions: Object, phase: str = "Pending") -> Callable[[Object], None]:
    status = {"phase": phase, "observedGeneration": 1, "conditions": list(conditions)}
    return lambda value: value.update(status=status)


def nothing(_: Object) -> None:
    """An event that changes nothing of interest."""


@pytest.fixture(autouse=True)
def _time_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress has the terminal's own time."""
    monkeypatch.setenv("TZ", "UTC")


def test_the_object_is_made(api: FakeKubectl) -> None:
    assert call(create, "create acme -n tenants --no-wait --class large", api) == Ended(0, CREATED, "")
    assert api.requests == [
        (
            "create",
            "tenants",
            {
                "apiVersion": "tenancy.x-k8s.io/v1alpha1",
                "kind": "VirtualCluster",
                "metadata": {"name": "acme"},
                "spec": {"clusterVersionName": "v1.34", "class": "large"},
            },
        )
    ]


def test_progress_until_ready(api: FakeKubectl) -> None:
    pending = condition("ControlPlaneAvailable", "False", "EtcdPending", "StatefulSet etcd has 0 of 1 ready")
    later = condition("ControlPlaneAvailable", "False", "ApiServerPending", "Deployment apiserver has 0 of 1")
    api.changes = [
        nothing,
        becomes(condition("Ready", "False"), pending),
        nothing,
        becomes(condition("Ready", "False"), later),
        becomes(condition("Ready"), condition("ControlPlaneAvailable"), phase="Running"),
    ]
    assert call(create, "create acme -n tenants", api) == Ended(
        0,
        CREATED,
        WAITS
        + "12:00:00  vc-operator has not observed the object\n"
        + "12:00:00  Ready False\n"
        + "12:00:00  ControlPlaneAvailable False (EtcdPending): StatefulSet etcd has 0 of 1 ready\n"
        + "12:00:00  ControlPlaneAvailable False (ApiServerPending): Deployment apiserver has 0 of 1\n"
        + "12:00:00  Ready True\n"
        + "12:00:00  ControlPlaneAvailable True\n"
        + "VirtualCluster tenants/acme: done after 0 s\n"
        + "To use it: kubectl vc shell acme -n tenants\n",
    )


def test_a_timeout_names_what_it_waited_for(api: FakeKubectl) -> None:
    api.changes = [becomes(condition("Ready", "False", "EtcdPending", "etcd has 0 of 1")), None]
    assert call(create, "create acme -n tenants", api) == Ended(
        1,
        CREATED,
        WAITS
        + "12:00:00  vc-operator has not observed the object\n"
        + "12:00:00  Ready False (EtcdPending): etcd has 0 of 1\n"
        + "VirtualCluster tenants/acme is not done after 300 s: Ready False (EtcdPending): etcd has 0 of 1\n"
        + "It goes on. To look: kubectl vc get acme -n tenants; kubectl vc doctor acme -n tenants\n",
    )


def test_what_must_be_changed_ends_the_wait(api: FakeKubectl) -> None:
    api.changes = [becomes(condition("Ready", "False", "Bad", "change spec.serviceCidr"), phase="Error")]
    ended = call(create, "create acme -n tenants", api)
    assert (ended.code, ended.error) == (
        None,
        "VirtualCluster tenants/acme: Ready False (Bad): change spec.serviceCidr",
    )


def test_a_deletion_ends_the_wait(api: FakeKubectl) -> None:
    api.changes = [lambda value: value.clear()]
    ended = call(create, "create acme -n tenants", api)
    assert (ended.code, ended.error) == (None, "VirtualCluster tenants/acme was deleted meanwhile")


def test_an_interrupt_says_that_it_goes_on(api: FakeKubectl) -> None:
    def interrupt(_: Object) -> None:
        raise KeyboardInterrupt

    api.changes = [interrupt]
    with pytest.raises(KeyboardInterrupt):
        call(create, "create acme -n tenants", api)


def test_a_name_that_is_taken(api: FakeKubectl) -> None:
    api.add(VIRTUAL_CLUSTERS, running())
    assert call(create, "create acme -n tenants", api).error == (
        "cannot create VirtualCluster tenants/acme: the super cluster: AlreadyExists:"
        ' virtualclusters.tenancy.x-k8s.io "acme" already exists; choose another name,'
        " or look at it with `kubectl vc get`"
    )


def test_versions_that_may_not_be_listed(api: FakeKubectl) -> None:
    api.refusals["list", CLUSTER_VERSIONS] = RequestFault(FaultReason.FORBIDDEN, "no")
    assert call(create, "create acme -n tenants --no-wait --cluster-version v9", api).code == 0
    assert call(create, "create other", api).error == (
        "cannot list ClusterVersions: the super cluster: Forbidden: no; ask an administrator of that"
        " cluster for this right, or use another --context"
    )


def test_get_prints_a_table() -> None:
    api = FakeKubectl({VIRTUAL_CLUSTERS: [running("b"), running("a", namespace="other"), running("a")]})
    assert call(get, "get -n tenants", api) == Ended(
        0,
        "NAME   PHASE     READY   VERSION   CLASS   SLEEPING SINCE   AGE     WAITS FOR\n"
        "a      Running   True    v1.34     -       -                2h30m   -\n"
        "b      Running   True    v1.34     -       -                2h30m   -\n",
        "",
    )
    assert call(get, "get -A", api).out == (
        "NAMESPACE   NAME   PHASE     READY   VERSION   CLASS   SLEEPING SINCE   AGE     WAITS FOR\n"
        "other       a      Running   True    v1.34     -       -                2h30m   -\n"
        "tenants     a      Running   True    v1.34     -       -                2h30m   -\n"
        "tenants     b      Running   True    v1.34     -       -                2h30m   -\n"
    )
    assert call(get, "get b -o json -n tenants", api) == Ended(0, 'json: ["b"]\n', "")
    assert api.requests == []


def test_get_of_nothing() -> None:
    api = FakeKubectl()
    line = "no VirtualCluster in namespace tenants; make one: kubectl vc create NAME\n"
    assert call(get, "get -n tenants", api) == Ended(0, "", line)
    assert call(get, "get", api) == Ended(0, "", "no VirtualCluster; make one: kubectl vc create NAME\n")
    assert call(get, "get x", api).error == (
        "cannot list VirtualClusters: the super cluster: NotFound: virtualclusters.tenancy.x-k8s.io"
        ' "x" not found; list what there is with `kubectl vc get -A`'
    )
