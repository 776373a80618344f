# SPDX-License-Identifier: Apache-2.0
"""The ground carries control planes before an operator makes them: a hand-written one, as restricted pods."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.k8s.operator import by_hand, load, releases, storage
from tests.k8s.operator.ground import OperatorGround
from tests.k8s.ring.api import JsonObject, KubernetesApi
from tests.k8s.ring.controlplane import write_kubeconfig
from tests.k8s.ring.kubectl import Kubectl
from tests.k8s.ring.processes import RingError, wait_for

pytestmark = pytest.mark.timeout(300)

_NAMESPACE = "by-hand"
_STARTED_S = 120.0
_GONE_S = 60.0


@dataclass(frozen=True, slots=True)
class HandMade:
    """The control plane in its namespace of the super cluster. `kubectl` is its administrator's."""

    ground: OperatorGround
    api: KubernetesApi
    kubectl: Kubectl


@pytest.fixture(scope="module")
def made(ground: OperatorGround, figures: list[str]) -> Iterator[HandMade]:
    """etcd, API server and controller manager, reached from the control planes' network by a cluster IP."""
    api = ground.api
    api.create("/api/v1/namespaces", by_hand.namespace(_NAMESPACE))
    try:
        began = time.monotonic()
        for service in by_hand.services(_NAMESPACE):
            _create(api, "/api/v1", service)
        address = api.get(f"/api/v1/namespaces/{_NAMESPACE}/services/apiserver")["spec"]["clusterIP"]
        certificates = by_hand.HandMadeCertificates(_NAMESPACE, address)
        _create(api, "/api/v1", certificates.secret(_NAMESPACE))
        for workload in by_hand.workloads(_NAMESPACE, releases.CURRENT):
            _create(api, "/apis/apps/v1", workload)
        etcd = f"/apis/apps/v1/namespaces/{_NAMESPACE}/statefulsets/etcd"
        _wait(ground, "etcd is ready", lambda: api.get(etcd)["status"].get("readyReplicas") == 1)
        etcd_s = time.monotonic() - began
        endpoint = certificates.endpoint(ground.ring.control, address)
        tenant = KubernetesApi(endpoint)
        _wait(ground, "the API server is ready", tenant.is_ready)
        ready_s = time.monotonic() - began
        accounts = "/api/v1/namespaces/default/serviceaccounts"
        _wait(ground, "controllers work", lambda: tenant.get(accounts)["items"])
        figures.append(
            f"by hand, from apply: etcd {etcd_s:.1f} s, readyz {ready_s:.1f} s, "
            f"controllers {time.monotonic() - began:.1f} s"
        )
        server = f"https://{address}:{by_hand.PORT}"
        kubeconfig = write_kubeconfig(ground.directory / "by-hand", server, endpoint)
        yield HandMade(ground, tenant, replace(ground.ring.super_kubectl, kubeconfig=kubeconfig))
    finally:
        api.delete(f"/api/v1/namespaces/{_NAMESPACE}")


def test_hand_written_control_plane_serves(made: HandMade) -> None:
    assert made.api.get("/version")["gitVersion"] == releases.CURRENT.version


def test_client_counts_what_fails(made: HandMade) -> None:
    """Nothing while the server runs; requests, once its pod is ended and no other one serves."""
    binary = made.ground.ring.binaries["client-load"]
    with load.running(binary, made.kubectl) as calm:
        pass
    calm.check()
    server = f"/api/v1/namespaces/{_NAMESPACE}/pods?labelSelector=app%3Dapiserver"
    (pod,) = made.ground.api.get(server)["items"]
    with load.running(binary, made.kubectl) as cut:
        made.ground.api.delete(f"/api/v1/namespaces/{_NAMESPACE}/pods/{pod['metadata']['name']}")
        _wait(made.ground, "its pod has gone", lambda: _has_gone(made.ground.api, server, pod))
        _wait(made.ground, "the API server is back", made.api.is_ready)
    assert cut.failed > 0
    assert len(cut.failures) > 0


def test_volume_goes_with_its_claim(ground: OperatorGround) -> None:
    """Of a claim with a pod: the data of a control plane that is deleted does not stay on the node."""
    api, namespace = ground.api, "claims"
    api.create("/api/v1/namespaces", by_hand.namespace(namespace))
    for service in by_hand.services(namespace):
        api.create(f"/api/v1/namespaces/{namespace}/services", service)
    certificates = by_hand.HandMadeCertificates(namespace, "10.96.0.1")
    api.create(f"/api/v1/namespaces/{namespace}/secrets", certificates.secret(namespace))
    etcd = by_hand.workloads(namespace, releases.CURRENT)[0]
    api.create(f"/apis/apps/v1/namespaces/{namespace}/statefulsets", etcd)
    claim = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/data-etcd-0"
    pod = f"/api/v1/namespaces/{namespace}/pods/etcd-0"
    _wait(ground, "etcd runs", lambda: _phase(api, pod) == "Running")
    volume = f"{storage.VOLUMES}/{api.get(claim)['spec']['volumeName']}"
    path = Path(api.get(volume)["spec"]["local"]["path"])
    assert path.is_dir()
    api.delete(f"/api/v1/namespaces/{namespace}")
    try:
        wait_for(
            "the volume goes",
            lambda: api.endpoint.request("GET", volume).status == 404,
            timeout_s=_GONE_S,
        )
    except RingError as error:
        raise AssertionError(f"{error}: {ground.provisioner.failure}") from None
    assert not path.exists()


def _create(api: KubernetesApi, group: str, value: JsonObject) -> None:
    api.create(f"{group}/namespaces/{_NAMESPACE}/{value['kind'].lower()}s", value)


def _phase(api: KubernetesApi, path: str) -> str:
    reply = api.endpoint.request("GET", path)
    return str(reply.json()["status"].get("phase", "")) if reply.status == 200 else ""


def _has_gone(api: KubernetesApi, pods: str, pod: JsonObject) -> bool:
    return all(each["metadata"]["uid"] != pod["metadata"]["uid"] for each in api.get(pods)["items"])


def _wait(ground: OperatorGround, what: str, probe: Callable[[], object]) -> None:
    """Wait; a failure shows the namespace's pods, Events and logs."""
    kubectl = replace(ground.ring.super_kubectl, namespace=_NAMESPACE)
    try:
        wait_for(what, probe, timeout_s=_STARTED_S)
    except RingError as error:
        shown = [
            kubectl(*command).text[-4000:]
            for command in (
                ("get", "pods,pvc", "-o", "wide"),
                ("get", "events"),
                *(("logs", f"--selector=app={app}", "--tail=20") for app in ("etcd", "apiserver")),
            )
        ]
        raise AssertionError("\n".join([str(error), *shown, ground.provisioner.failure])) from None
