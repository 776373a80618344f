# SPDX-License-Identifier: Apache-2.0
"""The node's daemons serve what the syncer made: in a guest, Services have the tenant's own addresses."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.k8s.ring import daemons
from tests.k8s.ring.images import AGNHOST
from tests.k8s.syncer import policies
from tests.k8s.syncer.cluster import SyncedRing
from tests.k8s.syncer.shops import Shop, agnhost, deployment, object_of, pod, service

pytestmark = pytest.mark.timeout(300)

_PORT = 8080
_CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
_HANDLER = "kata"


@pytest.fixture(scope="module")
def runtime_class(synced_ring: SyncedRing) -> Iterator[str]:
    """kata-bridge and kubeproxy-ext on all nodes, and a RuntimeClass of their guests that pods may name."""
    api = synced_ring.super_cluster.api
    with ExitStack() as stack:
        stack.enter_context(policies.applied(api, pods={"runtimeClasses": [_HANDLER]}))
        for node in synced_ring.nodes:
            bridge = daemons.kata_bridge(node, sys.executable)
            proxy = daemons.kubeproxy_ext(node, sys.executable)
            stack.callback(bridge.stop)
            stack.callback(proxy.stop)
            bridge.start()
            proxy.start()
        made = object_of("node.k8s.io/v1", "RuntimeClass", _HANDLER, handler=_HANDLER)
        made["metadata"]["labels"] = {"tenancy.x-k8s.io/super.public": "true"}
        api.create(_CLASSES, made, may_exist=True)
        stack.callback(api.delete, f"{_CLASSES}/{_HANDLER}")
        yield _HANDLER


def test_guest_reaches_services_by_the_tenants_addresses(
    shops: tuple[Shop, Shop], runtime_class: str
) -> None:
    server = {
        "containers": [agnhost("netexec", f"--http-port={_PORT}")],
        "terminationGracePeriodSeconds": 1,
    }
    guest = {
        "runtimeClassName": runtime_class,
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
    for shop in shops:
        shop.wait_own(
            "the class is in the tenant",
            lambda own: own.api.endpoint.request("GET", f"{_CLASSES}/{runtime_class}").status == 200,
        )
        shop.apply(
            service("web", "web", _PORT),
            deployment("web", server),
            pod("guest", guest, labels={"app": "guest"}),
        )
    for shop in shops:
        (web,) = shop.wait_running("app=web")
        shop.wait_running("app=guest")
        address = shop.get("services", "web")["spec"]["clusterIP"]
        request = f"printf 'GET /hostname HTTP/1.0\\r\\n\\r\\n' | nc -w 3 {address} {_PORT} | tail -n 1"
        shop.wait_output("guest", request, web["metadata"]["name"])
        own = shop.api.get("/api/v1/namespaces/default/services/kubernetes")["spec"]["clusterIP"]
        shop.wait_output("guest", f"/agnhost connect --timeout=3s {own}:443 && echo reached", "reached")
