# SPDX-License-Identifier: Apache-2.0
"""Parts of a control plane are lost: conditions tell, service returns without hands, neighbours go on."""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.k8s.operator import load, neighbours, tenants
from tests.k8s.operator.daemon import CLUSTER_VERSIONS, NAMESPACE
from tests.k8s.operator.tenants import OperatedTenant
from tests.k8s.ring.api import JsonObject, KubernetesApi
from tests.k8s.ring.processes import RingError
from tests.k8s.syncer.shops import is_ready, object_of

pytestmark = pytest.mark.timeout(300)

Residents = tuple[OperatedTenant, OperatedTenant]
_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
_AVAILABLE = "ControlPlaneAvailable"
_SHOWN_S = 10.0
_BACK_S = 90.0
_LARGE = "/apis/apps/v1/namespaces/default/controllerrevisions"
# Of which 52 would fill the store.
_MOST_LARGE = 60
_DELETED = 12


@pytest.mark.parametrize("component", ["etcd", "apiserver"])
def test_lost_pod_is_shown_and_returns(residents: Residents, component: str, figures: list[str]) -> None:
    """Without a grace period, as with its node."""
    tenant, neighbour = residents
    (pod,) = _pods(tenant, component)
    with _lost(tenant, neighbour, component, figures):
        tenant.ground.api.delete(_path(pod))
    assert {each["metadata"]["uid"] for each in _pods(tenant, component)} != {pod["metadata"]["uid"]}


def test_killed_controller_manager_returns(residents: Residents, figures: list[str]) -> None:
    tenant, neighbour = residents
    (pod,) = _pods(tenant, "controller-manager")
    with _lost(tenant, neighbour, "controller-manager", figures):
        os.kill(_process_of(pod, "kube-controller-manager"), signal.SIGKILL)
    (after,) = _pods(tenant, "controller-manager")
    assert after["metadata"]["uid"] == pod["metadata"]["uid"]
    assert after["status"]["containerStatuses"][0]["restartCount"] == 1


def test_budget_lets_one_api_server_go(residents: Residents) -> None:
    """Of two; the second one may go when another one serves in the first one's place."""
    tenant = residents[1]
    tenant.wait("both serve", lambda: _are_ready(tenant, "apiserver", 2))
    one, other = _pods(tenant, "apiserver")
    assert _evict(tenant, one) == 201
    assert _evict(tenant, other) == 429
    tenant.wait("both serve again", lambda: _are_ready(tenant, "apiserver", 2))


def test_drained_node_costs_no_request(residents: Residents, figures: list[str]) -> None:
    """Of two API servers, while a client works. The store is on a disk of its node, and stays there."""
    tenant = residents[1]
    tenant.wait("both serve", lambda: _are_ready(tenant, "apiserver", 2))
    (store,) = _pods(tenant, "etcd")
    (node,) = {each.name for each in tenant.ground.ring.nodes} - {store["spec"]["nodeName"]}
    selector = f"tenancy.x-k8s.io/vcuid={tenant.get()['metadata']['uid']}"
    with load.running(tenant.ground.ring.binaries["client-load"], tenant.kubectl()) as report:
        try:
            drained = tenant.ground.ring.super_kubectl(
                *("drain", node, f"--pod-selector={selector},app.kubernetes.io/component"),
                *("--delete-emptydir-data", "--timeout=90s"),
                timeout_s=100,
            )
            drained.check()
            tenant.wait("both serve elsewhere", lambda: _are_ready(tenant, "apiserver", 2))
        finally:
            tenant.ground.ring.super_kubectl("uncordon", node).check()
    assert {each["spec"]["nodeName"] for each in _pods(tenant, "apiserver")} == {store["spec"]["nodeName"]}
    report.check()
    figures.append(f"{tenant.name}, node drained: {report}")


def test_tenant_sleeps_without_a_pod_and_wakes(residents: Residents, figures: list[str]) -> None:
    tenant, neighbour = residents
    with neighbours.asked(neighbour) as times:
        began = time.monotonic()
        tenant.annotate(sleep_requested_at=_now())
        tenant.wait_condition("Sleeping")
        tenant.wait("it has no pod", lambda: not _pods(tenant))
        assert tenant.condition(tenants.READY)["reason"] == "Asleep"
        assert "kubectl vc wake" in tenant.condition(tenants.READY)["message"]
        assert tenant.get()["status"]["phase"] == "Running"
        slept_s = time.monotonic() - began
        began = time.monotonic()
        tenant.annotate(wake_requested_at=_now())
        tenant.wait("it answers", tenant.api().is_ready)
        woken_s = time.monotonic() - began
        tenant.wait_condition(tenants.READY)
    times.check()
    figures.append(
        f"{tenant.name}: asleep in {slept_s:.1f} s, answers {woken_s:.1f} s after the request to wake (goal "
        f"8 s), Ready {time.monotonic() - began:.1f} s; {neighbour.name}: {times}"
    )


def test_webhook_that_refuses_all_does_not_keep_it_down(residents: Residents) -> None:
    """All pods of the control plane are lost meanwhile; what the operator may not write names the webhook."""
    tenant = residents[0]
    super_api, versions = tenant.ground.api, f"{CLUSTER_VERSIONS}/resident"
    manifest = object_of("v1", "ConfigMap", "from-the-platform")
    manifest["metadata"]["namespace"] = "default"
    listed = object_of("v1", "ConfigMap", "platform", data={"all.yaml": json.dumps(manifest)})
    tenant.api().create(_WEBHOOKS, _webhook_that_refuses_all())
    try:
        for pod in _pods(tenant):
            super_api.delete(_path(pod))
        tenant.wait_condition(_AVAILABLE, "False")
        tenant.wait_condition(tenants.READY)
        super_api.create(f"/api/v1/namespaces/{NAMESPACE}/configmaps", listed)
        super_api.patch(versions, {"spec": {"defaults": [{"configMap": "platform"}]}})
        refused = tenant.wait_condition("UpToDate", "False")
        assert "ValidatingWebhookConfiguration refuses-all" in refused["message"]
        assert "kubectl vc unblock" in refused["message"]
    finally:
        tenant.api().delete(f"{_WEBHOOKS}/refuses-all")
        super_api.patch(versions, {"spec": {"defaults": []}})
    tenant.wait_condition("UpToDate")


def test_full_store_is_shown_and_takes_writes_again(residents: Residents, figures: list[str]) -> None:
    """Objects are deleted by hand, as the condition says; nobody disarms etcd's alarm. A webhook refuses what
    others write into the tenant meanwhile."""
    tenant, neighbour = residents
    (store,) = _pods(tenant, "etcd")
    tenant.wait_condition(tenants.READY)
    api = tenant.api()
    with (
        _refusing(api, ""),
        neighbours.asked(neighbour) as times,
        neighbours.watched(tenant) as history,
    ):
        names, refusal = _filled(api, _MOST_LARGE)
        assert "database space exceeded" in refusal
        began = time.monotonic()
        shown = tenant.wait_condition(_AVAILABLE, "False", reason="StoreRefusesWrites", timeout_s=_SHOWN_S)
        shown_s = time.monotonic() - began
        assert (
            f"delete objects of the tenant, or give its class more than quotaBytes {64 << 20}"
            in (shown["message"])
        )
        began = time.monotonic()
        for name in names[:_DELETED]:
            api.delete(f"{_LARGE}/{name}")
        tenant.wait("it takes large objects again", lambda: len(_filled(api, 4)[0]) == 4, timeout_s=_BACK_S)
        tenant.wait_condition(tenants.READY, timeout_s=_BACK_S)
        back_s = time.monotonic() - began
    times.check()
    assert history.first(tenants.READY, "False") is not None
    (after,) = _pods(tenant, "etcd")
    assert [each["restartCount"] for each in after["status"]["containerStatuses"]] == [0]
    assert after["metadata"]["uid"] == store["metadata"]["uid"]
    figures.append(
        f"{tenant.name}, store full: shown after {shown_s:.1f} s, takes writes {back_s:.1f} s after objects "
        f"were deleted; {neighbour.name}: {times}"
    )


@contextmanager
def _lost(
    tenant: OperatedTenant, neighbour: OperatedTenant, component: str, figures: list[str]
) -> Iterator[None]:
    """What is lost within is shown by a condition that names it, and the tenant becomes Ready again."""
    tenant.wait_condition(tenants.READY)
    with neighbours.asked(neighbour) as times, neighbours.watched(tenant) as history:
        began = time.monotonic()
        yield

        def is_shown() -> bool:
            return history.first(_AVAILABLE, "False") is not None

        tenant.wait(f"a condition has the loss of {component}", is_shown, timeout_s=_SHOWN_S)
        tenant.wait_condition(tenants.READY, timeout_s=_BACK_S)
        tenant.wait("it answers", tenant.api().is_ready, timeout_s=_BACK_S)
        back_s = time.monotonic() - began
    times.check()
    shown = history.first(_AVAILABLE, "False")
    assert shown is not None
    assert component in shown.message
    assert f"namespace {tenant.key}" in shown.message
    figures.append(
        f"{tenant.name}, {component} lost: shown after {shown.after_s:.1f} s, back after {back_s:.1f} s; "
        f"{neighbour.name}: {times}"
    )


def _filled(api: KubernetesApi, count: int) -> tuple[list[str], str]:
    """Create objects of more than a megabyte, which vc-syncer leaves alone; returns the names of those that
    were made, and why one was refused. Of a request that times out nothing is known: another one follows."""
    names: list[str] = []
    made = {"metadata": {"generateName": "large-"}, "revision": 1, "data": {"text": "x" * 1_300_000}}
    for _ in range(count):
        try:
            names.append(api.create(_LARGE, made)["metadata"]["name"])
        except TimeoutError:
            continue
        except (OSError, RingError) as error:
            return names, str(error)
    return names, ""


@contextmanager
def _refusing(api: KubernetesApi, group: str) -> Iterator[None]:
    """Nothing of the group can be written within."""
    api.create(_WEBHOOKS, _webhook_that_refuses_all(group))
    try:
        yield
    finally:
        api.delete(f"{_WEBHOOKS}/refuses-all")


def _webhook_that_refuses_all(group: str = "*") -> JsonObject:
    """Of a Service that does not exist, as of an operator that was removed."""
    webhook = {
        "name": "refuses.all.test",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "timeoutSeconds": 1,
        "clientConfig": {"service": {"namespace": "default", "name": "none"}},
        "rules": [{"apiGroups": [group], "apiVersions": ["*"], "resources": ["*/*"], "operations": ["*"]}],
    }
    return object_of(
        "admissionregistration.k8s.io/v1",
        "ValidatingWebhookConfiguration",
        "refuses-all",
        webhooks=[webhook],
    )


def _pods(tenant: OperatedTenant, component: str = "") -> list[JsonObject]:
    """Of its control plane, without those that are ending."""
    selector = f"?labelSelector=app.kubernetes.io/component%3D{component}" if component else ""
    found = tenant.ground.api.get(f"/api/v1/namespaces/{tenant.key}/pods{selector}")["items"]
    return found if not component else [each for each in found if "deletionTimestamp" not in each["metadata"]]


def _are_ready(tenant: OperatedTenant, component: str, count: int) -> bool:
    found = _pods(tenant, component)
    return len(found) == count and all(map(is_ready, found))


def _path(pod: JsonObject) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def _evict(tenant: OperatedTenant, pod: JsonObject) -> int:
    """The status of the request."""
    metadata = {key: pod["metadata"][key] for key in ("name", "namespace")}
    document = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
    return tenant.ground.api.endpoint.request(
        "POST",
        f"{_path(pod)}/eviction",
        body=json.dumps(document).encode(),
        headers={"Content-Type": "application/json"},
    ).status


def _process_of(pod: JsonObject, program: str) -> int:
    """The process of a container: its control group has the pod's UID."""
    uid = pod["metadata"]["uid"]
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if uid in (path / "cgroup").read_text() and program in (path / "cmdline").read_bytes().decode():
                return int(path.name)
        except OSError:
            continue
    raise AssertionError(f"{program} of pod {uid} does not run")


def _now() -> str:
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
