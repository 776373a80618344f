# SPDX-License-Identifier: Apache-2.0
"""Two VirtualClusters are applied, nothing else: all of kubectl works in each tenant. Times are printed."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest

from tests.k8s.operator import releases, storage, tenants
from tests.k8s.operator.daemon import OperatorDaemon
from tests.k8s.operator.ground import OperatorGround
from tests.k8s.operator.tenants import OperatedTenant
from tests.k8s.ring import images
from tests.k8s.ring.images import AGNHOST
from tests.k8s.ring.kubectl import Kubectl
from tests.k8s.syncer.daemon import SyncerDaemon
from tests.k8s.syncer.networked import HANDLER, networked
from tests.k8s.syncer.shops import agnhost, deployment, pod, service

pytestmark = pytest.mark.timeout(400)

_RELEASE = "v1.34"
_NAMES = ("blue", "green")
_NAMESPACE = "shop"
_PORT = 8080

BothTenants = tuple[OperatedTenant, OperatedTenant]


@pytest.fixture(scope="module")
def pair(
    ground: OperatorGround, syncer: SyncerDaemon, operator: OperatorDaemon, figures: list[str]
) -> Iterator[BothTenants]:
    """Both, Ready, with every daemon of ours on the nodes; each has a server with its own name."""
    with networked(ground.ring, syncer, "node"):
        server = ground.ring.binaries["metrics-server"]
        releases.import_image(ground.ring, lambda archive: images.write_metrics_server_image(archive, server))
        version = tenants.cluster_version(_RELEASE, releases.CURRENT)
        version["spec"]["images"]["metricsServer"] = images.METRICS_SERVER
        tenants.apply(ground, version)
        one, other = (tenants.create(ground, operator, name, clusterVersionName=_RELEASE) for name in _NAMES)
        try:
            for tenant in (one, other):
                tenant.wait_condition(tenants.READY)
                figures.append(f"{tenant.name}: apply to Ready {tenant.elapsed_s:.1f} s")
            for tenant in (one, other):
                _start(tenant)
            for tenant in (one, other):
                tenant.wait("its log", partial(_log, _kubectl(tenant)))
                figures.append(f"{tenant.name}: apply to the first kubectl logs {tenant.elapsed_s:.1f} s")
            yield one, other
        finally:
            # What fails above is shown, and not that it cannot be deleted.
            for tenant in (one, other):
                tenant.delete()


def test_deployment_has_its_own_log(pair: BothTenants) -> None:
    for tenant in pair:
        kubectl = _kubectl(tenant)
        kubectl("rollout", "status", "deployment/web", "--timeout=60s").check()
        assert "Started HTTP server on port 8080" in _log(kubectl)


def test_exec_enters_its_own_pod(pair: BothTenants) -> None:
    for tenant in pair:
        shown = _kubectl(tenant)("exec", "deployment/web", "--", "cat", "/etc/hostname").check().text
        (name,) = _pods(tenant, "app=web")
        assert shown.strip() == name


def test_service_is_reached_by_its_name(pair: BothTenants) -> None:
    """From a guest: the cluster IPs of both tenants are of one range."""
    for tenant in pair:
        kubectl = _kubectl(tenant)
        kubectl("wait", "--for=condition=ready", "pod/guest", "--timeout=90s").check()
        (server,) = _pods(tenant, "app=web")
        script = f"printf 'GET /hostname HTTP/1.0\\r\\n\\r\\n' | nc -w 3 web {_PORT} | tail -n 1"

        def is_own(kubectl: Kubectl = kubectl, server: str = server, script: str = script) -> bool:
            return server in kubectl("exec", "guest", "--", "sh", "-c", script).text

        tenant.wait("its own server answers", is_own, timeout_s=60)


def test_top_has_its_own_pods_alone(pair: BothTenants) -> None:
    for tenant in pair:
        kubectl = _kubectl(tenant)

        def is_measured(kubectl: Kubectl = kubectl) -> bool:
            lines = kubectl("top", "pod", "--no-headers").text.splitlines()
            return len(lines) == 2

        tenant.wait("its pods have figures", is_measured)
        names = {line.split()[0] for line in kubectl("top", "pod", "--no-headers").check().text.splitlines()}
        assert names == {*_pods(tenant, "app=web"), "guest"}


def test_nothing_of_one_tenant_is_in_the_other(pair: BothTenants) -> None:
    one, other = pair
    assert one.key != other.key
    assert not set(_pods(one, "app=web")) & set(_pods(other, "app=web"))
    for tenant, foreign in ((one, other), (other, one)):
        outsider = replace(tenant.api().endpoint, leaf=foreign.api().endpoint.leaf)
        assert outsider.request("GET", "/api/v1/namespaces").status == 401


def test_delete_leaves_no_namespace(pair: BothTenants, figures: list[str]) -> None:
    """The last test of both. Root namespaces, tenants' namespaces and volumes of stores go."""
    for tenant in pair:
        key, began = tenant.key, time.monotonic()
        tenant.delete()
        tenant.wait_gone()
        figures.append(f"{tenant.name}: deleted in {time.monotonic() - began:.1f} s")
        api = tenant.ground.api
        left = [each["metadata"]["name"] for each in api.get("/api/v1/namespaces")["items"]]
        assert not [name for name in left if name.startswith(key)]
        claims = [volume["spec"]["claimRef"]["namespace"] for volume in api.get(storage.VOLUMES)["items"]]
        assert key not in claims


def _kubectl(tenant: OperatedTenant) -> Kubectl:
    return tenant.kubectl(_NAMESPACE)


def _start(tenant: OperatedTenant) -> None:
    """What a tenant's owner does first: a namespace, a Deployment, its Service, and a client."""
    spec = {"containers": [agnhost("netexec", f"--http-port={_PORT}")], "terminationGracePeriodSeconds": 1}
    guest = {
        "runtimeClassName": HANDLER,
        "terminationGracePeriodSeconds": 1,
        "containers": [
            {
                "name": "main",
                "image": AGNHOST,
                "imagePullPolicy": "Never",
                "command": ["sh", "-c", "exec sleep 100000"],
            }
        ],
    }
    tenant.kubectl()("create", "namespace", _NAMESPACE).check()
    document = {
        "apiVersion": "v1",
        "kind": "List",
        "items": [deployment("web", spec), service("web", "web", _PORT), pod("guest", guest)],
    }
    _kubectl(tenant)("apply", "-f", "-", stdin=json.dumps(document).encode()).check()


def _log(kubectl: Kubectl) -> str:
    return kubectl("logs", "deployment/web").text


def _pods(tenant: OperatedTenant, selector: str) -> list[str]:
    shown = _kubectl(tenant)("get", "pods", "-l", selector, "-o", "jsonpath={.items[*].metadata.name}")
    return shown.check().text.split()
