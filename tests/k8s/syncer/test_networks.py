# SPDX-License-Identifier: Apache-2.0
"""All daemons together: gate, rules and resolver of guests; DNS servers are the tenants' own pods."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tenancy import keys
from tests.k8s.ring import gating
from tests.k8s.ring.api import JsonObject, KubernetesApi
from tests.k8s.ring.images import AGNHOST
from tests.k8s.syncer import networked as serving
from tests.k8s.syncer.cluster import SyncedRing
from tests.k8s.syncer.daemon import SyncerDaemon
from tests.k8s.syncer.networked import HANDLER, NETWORKS, phase
from tests.k8s.syncer.shops import Shop, agnhost, deployment, object_of, pod, service

pytestmark = pytest.mark.timeout(300)

_PORT = 8080
_READY_S = 90.0
# The policy of super pods, by who gives them their resolver.
_POLICIES = {"node": "ClusterFirst", "syncer": "None"}


@pytest.fixture(scope="module", params=list(_POLICIES))
def networked(synced_ring: SyncedRing, syncer: SyncerDaemon, request: pytest.FixtureRequest) -> Iterator[str]:
    """Every daemon on every node, and a syncer that serves Networks; afterwards all is as it was.

    By dnsconfig (`node`), or by the syncer itself, guests get their resolver.
    """
    by: str = request.param
    with serving.networked(synced_ring, syncer, by):
        yield by


def _guest(**metadata: object) -> JsonObject:
    main = {"name": "main", "image": AGNHOST, "imagePullPolicy": "Never"}
    spec = {
        "runtimeClassName": HANDLER,
        "terminationGracePeriodSeconds": 1,
        "containers": [{**main, "command": ["sh", "-c", "exec sleep 100000"]}],
    }
    return pod("guest", spec, **{"labels": {"app": "guest"}, **metadata})


def _start(shop: Shop) -> None:
    server = {
        "containers": [agnhost("netexec", f"--http-port={_PORT}")],
        "terminationGracePeriodSeconds": 1,
    }
    shop.apply(service("web", "web", _PORT), deployment("web", server), _guest())


def _request(host: str) -> str:
    return f"printf 'GET /hostname HTTP/1.0\\r\\n\\r\\n' | nc -w 3 {host} {_PORT} | tail -n 1"


def _cluster_ip(api: KubernetesApi, namespace: str, name: str) -> str:
    return str(api.get(f"/api/v1/namespaces/{namespace}/services/{name}")["spec"]["clusterIP"])


def test_guest_reaches_a_service_by_its_name(networked: str, shops: tuple[Shop, Shop]) -> None:
    """By short and full name, and by both cluster IPs; each tenant has another answer."""
    for shop in shops:
        _start(shop)
    for shop in shops:
        (web,) = shop.wait_running("app=web")
        shop.wait_running("app=guest")
        own = _cluster_ip(shop.api, shop.namespace, "web")
        below = _cluster_ip(shop.super_api, shop.super_namespace, "web")
        assert own.startswith("10.32.")
        assert below.startswith("10.96.")
        full = f"web.{shop.namespace}.svc.cluster.local"
        shop.wait_output("guest", f"nslookup -type=a {full}", own)
        for host in ("web", full, own, below):
            shop.wait_output("guest", _request(host), web["metadata"]["name"])


def test_resolver_is_the_networks(networked: str, shops: tuple[Shop, Shop]) -> None:
    """The server is the tenant's own Service at its address below, and the names are the tenant's."""
    servers = []
    for shop in shops:
        _start(shop)
    for shop in shops:
        shop.wait_running("app=guest")
        text = shop.sh("guest", "cat /etc/resolv.conf").check().text
        namespace = shop.tenant.super_namespace("kube-system")
        server = _cluster_ip(shop.super_api, namespace, "kube-dns-default")
        assert f"nameserver {server}\n" in text
        assert f"search {shop.namespace}.svc.cluster.local svc.cluster.local cluster.local" in text
        servers.append(server)
        made = shop.in_super("pods", "guest")
        assert made is not None
        assert made["spec"]["dnsPolicy"] == _POLICIES[networked]
        assert gating.REQUIRED.items() <= made["metadata"]["annotations"].items()
    assert len(set(servers)) == 2


def test_guest_finds_its_apiserver_by_name(networked: str, shop: Shop) -> None:
    shop.apply(_guest())
    shop.wait_running("app=guest")
    connect = "/agnhost connect --timeout=3s kubernetes.default.svc.cluster.local:443 && echo reached"
    shop.wait_output("guest", connect, "reached")


def test_network_holds_its_own_services_alone(networked: str, shop: Shop) -> None:
    """A second network: its pods find its Services, and not those of the default network."""
    label = {keys.ARKTOS_NETWORK: "blue"}
    made = object_of("arktos.futurewei.com/v1", "Network", "blue", spec={"type": "flat"})
    shop.api.create(NETWORKS, made)
    try:
        shop.wait("it is ready", lambda: phase(shop.tenant, "blue") == "Ready", timeout_s=_READY_S)
        _start(shop)
        other = service("sky", "web", _PORT)
        other["metadata"]["labels"] = label
        inside = _guest(labels={"app": "inside", **label})
        inside["metadata"] |= {"name": "inside"}
        shop.apply(other, inside)
        shop.wait_running("app=inside")
        shop.wait_running("app=guest")
        found = _cluster_ip(shop.api, shop.namespace, "sky")
        shop.wait_output("inside", f"nslookup -type=a sky.{shop.namespace}.svc.cluster.local", found)
        shop.wait_output(
            "inside", f"nslookup -type=a web.{shop.namespace}.svc.cluster.local 2>&1", "NXDOMAIN"
        )
        shop.wait_output("guest", f"nslookup -type=a sky.{shop.namespace}.svc.cluster.local 2>&1", "NXDOMAIN")
        shop.kubectl("delete", "pod", "inside").check()
    finally:
        shop.api.delete(f"{NETWORKS}/blue")
    shop.wait("it has gone", lambda: not phase(shop.tenant, "blue"), timeout_s=_READY_S)
