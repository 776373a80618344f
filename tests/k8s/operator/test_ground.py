# SPDX-License-Identifier: Apache-2.0
"""The ground carries control planes before an operator makes them: a hand-written one, as restricted pods."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.k8s.operator import by_hand, releases, storage
from tests.k8s.operator.ground import OperatorGround
from tests.k8s.ring.api import KubernetesApi
from tests.k8s.ring.kubectl import Kubectl
from tests.k8s.ring.processes import RingError, wait_for

pytestmark = pytest.mark.timeout(300)

_NAMESPACE = "by-hand"
_STARTED_S = 120.0
_GONE_S = 60.0


def _create(api: KubernetesApi, kind_path: str, value: dict[str, object]) -> None:
    group, plural = kind_path.rsplit("/", 1)
    api.create(f"{group}/namespaces/{_NAMESPACE}/{plural}", value)


def _wait(kubectl: Kubectl, what: str, probe: object) -> None:
    """Wait; a failure shows the namespace's pods, Events and logs."""
    assert callable(probe)
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
        raise AssertionError("\n".join([str(error), *shown])) from None


def test_hand_written_control_plane_works(ground: OperatorGround, figures: list[str]) -> None:
    """etcd, API server and controller manager, reached from the control planes' network by a cluster IP."""
    api, plain = ground.api, ground.ring.super_kubectl
    kubectl = Kubectl(plain.network, plain.binary, plain.kubeconfig, _NAMESPACE)
    api.create("/api/v1/namespaces", by_hand.namespace(_NAMESPACE))
    try:
        began = time.monotonic()
        for service in by_hand.services(_NAMESPACE):
            _create(api, "/api/v1/services", service)
        address = api.get(f"/api/v1/namespaces/{_NAMESPACE}/services/apiserver")["spec"]["clusterIP"]
        certificates = by_hand.HandMadeCertificates(_NAMESPACE, address)
        _create(api, "/api/v1/secrets", certificates.secret(_NAMESPACE))
        for workload in by_hand.workloads(_NAMESPACE, releases.CURRENT):
            _create(api, f"/apis/apps/v1/{workload['kind'].lower()}s", workload)
        etcd = f"/apis/apps/v1/namespaces/{_NAMESPACE}/statefulsets/etcd"
        _wait(kubectl, "etcd is ready", lambda: api.get(etcd)["status"].get("readyReplicas") == 1)
        etcd_s = time.monotonic() - began
        tenant = KubernetesApi(certificates.endpoint(ground.ring.control, address))
        _wait(kubectl, "the API server is ready", tenant.is_ready)
        ready_s = time.monotonic() - began
        accounts = "/api/v1/namespaces/default/serviceaccounts"
        _wait(kubectl, "controllers work", lambda: tenant.get(accounts)["items"])
        whole_s = time.monotonic() - began
        version = tenant.get("/version")["gitVersion"]
        figures.append(
            f"by hand, from apply: etcd {etcd_s:.1f} s, readyz {ready_s:.1f} s, controllers {whole_s:.1f} s"
        )
        assert version == releases.CURRENT.version
    finally:
        api.delete(f"/api/v1/namespaces/{_NAMESPACE}")
    volumes = [v for v in api.get(storage.VOLUMES)["items"] if v["spec"]["storageClassName"] == storage.CLASS]
    assert len(volumes) == 1, ground.provisioner.failure
    (path,) = (Path(volume["spec"]["local"]["path"]) for volume in volumes)
    assert path.is_dir()

    def is_gone() -> bool:
        found = {volume["metadata"]["name"] for volume in api.get(storage.VOLUMES)["items"]}
        return volumes[0]["metadata"]["name"] not in found

    wait_for("the volume goes with its claim", is_gone, timeout_s=_GONE_S)
    assert not path.exists()
