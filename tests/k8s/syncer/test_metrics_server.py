# SPDX-License-Identifier: Apache-2.0
"""`kubectl top` and autoscalers in a tenant: its own stock metrics-server reads vn-agent's pages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace

import pytest

from tests.k8s.ring import images
from tests.k8s.ring.api import JsonObject
from tests.k8s.syncer import metrics_server
from tests.k8s.syncer.cluster import NODES, SyncedRing
from tests.k8s.syncer.daemon import SyncerDaemon
from tests.k8s.syncer.shops import WAIT_S, Shop, deployment, object_of, pod, pod_spec

pytestmark = pytest.mark.timeout(300)

_NAMESPACE = "measured"
_FILLED_MIB = 256
_BUSY_LOOP = "while true; do :; done"
_BUSY = {"limits": {"cpu": "200m"}}
# Of an autoscaled StatefulSet, whose pods have the same names in both tenants.
_SCALED = "scaled"
_MOST = 2
_TARGET_PERCENT = 50


@dataclass(frozen=True, slots=True)
class Usage:
    """What a row of `kubectl top` says: thousandths of a core, and MiB."""

    cpu_m: int
    memory_mib: int

    @property
    def is_busy(self) -> bool:
        return self.cpu_m >= 100

    @property
    def is_large(self) -> bool:
        return self.memory_mib >= _FILLED_MIB


@pytest.fixture(scope="module")
def measured(synced_ring: SyncedRing, syncer: SyncerDaemon) -> Iterator[tuple[Shop, Shop]]:
    """Both tenants have metrics-server, and a pod `measured/web` on the first node.

    The first tenant's uses a processor, the other one's memory. Nothing may be measured yet.
    """
    archive = synced_ring.directory / "metrics-server.tar"
    images.write_metrics_server_image(archive, synced_ring.binaries["metrics-server"])
    for node in synced_ring.nodes:
        node.node.import_image(archive)
    busy, large = (Shop(synced_ring, tenant, _NAMESPACE, syncer) for tenant in synced_ring.tenants)
    with ExitStack() as stack:
        for shop in (busy, large):
            shop.create()
            stack.callback(shop.delete)
        busy.apply(_busy_pod())
        large.apply(_large_pod(), pod("more", pod_spec()))
        homes = [
            Shop(synced_ring, tenant, metrics_server.NAMESPACE, syncer) for tenant in synced_ring.tenants
        ]
        for home in homes:
            stack.enter_context(metrics_server.installed(home))
        for home in homes:
            home.wait_running(metrics_server.APP)
        yield busy, large


def _busy_pod() -> JsonObject:
    spec = _first_node_spec(_BUSY_LOOP)
    spec["containers"][0]["resources"] = _BUSY
    return pod("web", spec)


def _large_pod() -> JsonObject:
    """Its files are memory."""
    spec = _first_node_spec(
        f"head -c {_FILLED_MIB}m /dev/zero >/filled/zeros",
        "exec sleep 100000",
        volumes=[{"name": "filled", "emptyDir": {"medium": "Memory"}}],
    )
    spec["containers"][0]["volumeMounts"] = [{"name": "filled", "mountPath": "/filled"}]
    return pod("web", spec)


def _first_node_spec(*commands: str, **fields: object) -> JsonObject:
    return pod_spec(*commands, nodeSelector={"kubernetes.io/hostname": NODES[0]}, **fields)


@pytest.fixture
def autoscaled(measured: tuple[Shop, Shop]) -> Iterator[tuple[Shop, Shop]]:
    """A namespace of autoscaled pods in each tenant. The first one's are busy."""
    busy, idle = (replace(shop, namespace=_SCALED) for shop in measured)
    with ExitStack() as stack:
        for shop, commands in ((busy, [_BUSY_LOOP]), (idle, [])):
            shop.create()
            stack.callback(shop.delete)
            shop.apply(*_autoscaled(*commands))
        yield busy, idle


def _autoscaled(*commands: str) -> list[JsonObject]:
    """A StatefulSet of one pod, and an autoscaler that wants it to use half of what its pods request."""
    spec = pod_spec(*commands)
    spec["containers"][0]["resources"] = {"requests": {"cpu": "100m"}, "limits": {"cpu": "200m"}}
    pods = deployment(_SCALED, spec)
    pods["kind"] = "StatefulSet"
    autoscaler = object_of(
        "autoscaling/v2",
        "HorizontalPodAutoscaler",
        _SCALED,
        spec={
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": _SCALED},
            "minReplicas": 1,
            "maxReplicas": _MOST,
            "metrics": [
                {
                    "type": "Resource",
                    "resource": {
                        "name": "cpu",
                        "target": {"type": "Utilization", "averageUtilization": _TARGET_PERCENT},
                    },
                }
            ],
        },
    )
    return [pods, autoscaler]


def _top(shop: Shop, kind: str) -> dict[str, Usage]:
    """The rows of `kubectl top` by their first column; a node without figures has none."""
    lines = shop.kubectl("top", kind, "--no-headers").text.splitlines()
    return {line.split(maxsplit=1)[0]: usage for line in lines if (usage := _usage(line))}


def _usage(line: str) -> Usage | None:
    found = re.search(r" (\d+)m .*?(\d+)Mi", line)
    return None if found is None else Usage(int(found[1]), int(found[2]))


def _pod_names(shop: Shop) -> set[tuple[str, str]]:
    """All pods that the tenant has, in all namespaces."""
    items = shop.api.get("/api/v1/pods")["items"]
    return {(item["metadata"]["namespace"], item["metadata"]["name"]) for item in items}


def _measured_names(shop: Shop) -> set[tuple[str, str]]:
    """All pods that the tenant has figures of, in all namespaces."""
    lines = shop.kubectl("top", "pod", "--all-namespaces", "--no-headers").check().text.splitlines()
    return {(namespace, name) for namespace, name, *_ in map(str.split, lines)}


def test_top_pod_shows_the_tenants_own(measured: tuple[Shop, Shop]) -> None:
    """Pods of the same namespace and name have their own tenant's figures."""
    busy, large = measured

    def busy_is_measured() -> bool:
        rows = _top(busy, "pod")
        return rows.keys() == {"web"} and rows["web"].is_busy and rows["web"].memory_mib < 32

    def large_is_measured() -> bool:
        rows = _top(large, "pod")
        return rows.keys() == {"web", "more"} and rows["web"].is_large and rows["web"].cpu_m < 50

    busy.wait("its own figures", busy_is_measured)
    large.wait("its own figures", large_is_measured)
    for shop, own in ((busy, {"web"}), (large, {"web", "more"})):
        pods = _pod_names(shop)
        rows = _measured_names(shop)
        assert rows <= pods
        assert {name for namespace, name in rows if namespace == _NAMESPACE} == own


def test_top_node_shows_the_vnodes(measured: tuple[Shop, Shop]) -> None:
    """Figures of a vNode are of the tenant's own pods: a neighbour on the same node is not in them."""
    busy, large = measured

    def busy_is_measured() -> bool:
        row = _top(busy, "node").get(NODES[0])
        return row is not None and row.is_busy and not row.is_large

    def large_is_measured() -> bool:
        row = _top(large, "node").get(NODES[0])
        return row is not None and row.is_large and not row.is_busy

    busy.wait("the node's figures are its own", busy_is_measured)
    large.wait("the node's figures are its own", large_is_measured)


def test_autoscalers_scale_by_their_own_pods(autoscaled: tuple[Shop, Shop]) -> None:
    """Of StatefulSets with pods of the same names, that is scaled whose own pods are busy."""
    busy, idle = autoscaled

    def busy_is_scaled() -> bool:
        status = _autoscaler_status(busy)
        used = _utilization(status)
        counts = (status.get("currentReplicas"), status.get("desiredReplicas"))
        return counts == (_MOST, _MOST) and used is not None and used > _TARGET_PERCENT

    def idle_is_measured() -> bool:
        used = _utilization(_autoscaler_status(idle))
        return used is not None and used < _TARGET_PERCENT

    # Two pods start, one after the other, and have figures after two readings of metrics-server.
    busy.wait("it is scaled to its maximum", busy_is_scaled, timeout_s=2 * WAIT_S)
    busy.wait_running(f"app={_SCALED}", _MOST)
    idle.wait("its own figures", idle_is_measured)
    busy.wait("all its pods are measured", lambda: _top(busy, "pod").keys() == {"scaled-0", "scaled-1"})
    status = _autoscaler_status(idle)
    # It has not been scaled since it is there.
    assert (status["currentReplicas"], status["desiredReplicas"]) == (1, 1)
    assert "lastScaleTime" not in status
    assert _top(idle, "pod").keys() == {"scaled-0"}


def _autoscaler_status(shop: Shop) -> JsonObject:
    path = f"/apis/autoscaling/v2/namespaces/{_SCALED}/horizontalpodautoscalers/{_SCALED}"
    status: JsonObject = shop.api.get(path)["status"]
    return status


def _utilization(status: JsonObject) -> int | None:
    """What the pods use, in percent of what they request; None while they have no figures."""
    for metric in status.get("currentMetrics") or ():
        current = (metric or {}).get("resource", {}).get("current", {})
        if "averageUtilization" in current:
            return int(current["averageUtilization"])
    return None
