# SPDX-License-Identifier: Apache-2.0
"""Services of tenants carry traffic to their pods, and both sides agree on their endpoints."""

from __future__ import annotations

from functools import partial

import pytest

from tests.k8s.ring.api import JsonObject
from tests.k8s.syncer.shops import Shop, agnhost, deployment, object_of, pod, pod_spec, service

pytestmark = pytest.mark.timeout(300)

_PORT = 8080
_SERVER = {
    "containers": [
        agnhost(
            *("netexec", f"--http-port={_PORT}"),
            readinessProbe={"httpGet": {"path": "/hostname", "port": _PORT}, "periodSeconds": 1},
        )
    ],
    "terminationGracePeriodSeconds": 1,
}


def _start(shop: Shop, *, replicas: int = 1) -> None:
    shop.apply(
        service("web", "web", _PORT),
        deployment("web", _SERVER, replicas=replicas),
        pod("client", pod_spec(), labels={"app": "client"}),
    )


def _super_ip(shop: Shop) -> str:
    found = shop.in_super("services", "web")
    return "" if found is None else str(found["spec"]["clusterIP"])


def _fetch(shop: Shop, address: str) -> str:
    """Not wget: Debian's static one may crash where it looks for names."""
    request = f"printf 'GET /hostname HTTP/1.0\\r\\n\\r\\n' | nc -w 3 {address} {_PORT} | tail -n 1"
    return shop.sh("client", request).text.strip()


def test_service_leads_to_its_pods(shops: tuple[Shop, Shop]) -> None:
    """By the super cluster's address, which the node's kube-proxy serves."""
    for shop in shops:
        _start(shop, replicas=2)
    for shop in shops:
        names = {p["metadata"]["name"] for p in shop.wait_running("app=web", 2)}
        shop.wait_running("app=client")
        seen: set[str] = set()

        def are_reached(shop: Shop = shop, seen: set[str] = seen, names: set[str] = names) -> bool:
            seen.add(_fetch(shop, _super_ip(shop)))
            return names <= seen

        shop.wait("all its pods answer, and no other", are_reached)
        assert seen - {""} == names


def test_both_sides_have_the_same_endpoints(shop: Shop) -> None:
    _start(shop, replicas=2)
    pods = shop.wait_running("app=web", 2)
    expected = {p["status"]["podIP"] for p in pods}
    shop.wait(
        "the tenant's slices and the super cluster's have both pods",
        lambda: (
            _ready(shop.items("endpointslices")) == expected == _ready(shop.super_items("endpointslices"))
        ),
    )
    shop.kubectl("scale", "deployment/web", "--replicas=1").check()
    shop.wait("one is left", lambda: len(_ready(shop.super_items("endpointslices"))) == 1)
    assert _ready(shop.super_items("endpointslices")) == _ready(shop.items("endpointslices"))


def test_unready_pod_leaves_its_service(shop: Shop) -> None:
    spec = pod_spec("touch /srv/ready", "exec sleep 100000")
    probe = {"exec": {"command": ["cat", "/srv/ready"]}, "periodSeconds": 1, "failureThreshold": 1}
    spec["containers"][0]["readinessProbe"] = probe
    shop.apply(service("web", "web", _PORT), pod("web", spec, labels={"app": "web"}))
    shop.wait_running("app=web")
    shop.wait("it has its endpoint", lambda: len(_ready(shop.super_items("endpointslices"))) == 1)
    shop.sh("web", "rm /srv/ready").check()
    shop.wait("it is gone above", lambda: not _ready(shop.items("endpointslices")))
    shop.wait("it is gone below", lambda: not _ready(shop.super_items("endpointslices")))


def test_service_without_selector_takes_the_tenants_endpoints(shop: Shop) -> None:
    _start(shop)
    (web,) = shop.wait_running("app=web")
    shop.wait_running("app=client")
    name = "by-hand"
    shop.apply(
        object_of("v1", "Service", name, spec={"ports": [{"name": "http", "port": _PORT}]}),
        {
            **object_of("discovery.k8s.io/v1", "EndpointSlice", f"{name}-1"),
            "metadata": {"name": f"{name}-1", "labels": {"kubernetes.io/service-name": name}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [web["status"]["podIP"]], "conditions": {"ready": True}}],
            "ports": [{"name": "http", "port": _PORT, "protocol": "TCP"}],
        },
    )

    def is_reached() -> bool:
        found = shop.in_super("services", name)
        return found is not None and _fetch(shop, found["spec"]["clusterIP"]) == web["metadata"]["name"]

    shop.wait("it leads to the pod", is_reached)


def test_nothing_leads_to_the_next_pod_with_an_address(shops: tuple[Shop, Shop]) -> None:
    """A tenant's own slices and Endpoints go on naming an address that another tenant's pod gets."""
    one, other = shops
    one.apply(pod("client", pod_spec(), labels={"app": "client"}), pod("web", _SERVER, labels={"app": "web"}))
    (web,) = one.wait_running("app=web")
    address = web["status"]["podIP"]
    one.apply(*_leading_to(web))
    names = {"by-address", "by-name", "by-endpoints"}
    one.wait("all lead to the pod", lambda: _leaders(one.super_items("endpointslices"), address) == names)
    one.kubectl("delete", "pod", "web", "--grace-period=0", "--force").check()
    _inherit(other, web["spec"]["nodeName"], address)
    one.wait("nothing below names it", lambda: not _leaders(one.super_items("endpointslices"), address))
    assert address not in str(one.super_items("endpoints"))
    # Above all three still do, and their author reads of it.
    assert _leaders(one.items("endpointslices"), address) == names
    for kind, name in _LEADERS.items():
        one.wait(f"{name} is refused", partial(_is_refused, one, kind, name, address))
    one.wait_running("app=client")
    for name in names:
        found = one.in_super("services", name)
        assert found is not None
        assert _fetch(one, found["spec"]["clusterIP"]) == ""
    assert _fetch(one, address).startswith("heir")


def test_tenants_own_address_stays(shops: tuple[Shop, Shop]) -> None:
    """Both tenants may have allocated the same one; the super cluster allocates its own."""
    address = "10.32.77.7"
    for shop in shops:
        shop.apply(service("web", "web", _PORT, clusterIP=address))
    for shop in shops:
        shop.wait_own("it is below", lambda own: _super_ip(own).startswith("10.96."))
        assert shop.get("services", "web")["spec"]["clusterIP"] == address
    assert _super_ip(shops[0]) != _super_ip(shops[1])
    for shop in shops:
        shop.kubectl("delete", "service", "web").check()
        shop.wait_gone("services", "web")


_LEADERS = {"Endpoints": "by-endpoints", "EndpointSlice": "by-address"}


def _leading_to(web: JsonObject) -> list[JsonObject]:
    """Services without selectors that lead to a pod: by its address, by its name, by Endpoints."""
    address = web["status"]["podIP"]
    target = {"kind": "Pod", "name": "web", "namespace": web["metadata"]["namespace"]}
    made = [
        object_of("v1", "Service", name, spec={"ports": [{"name": "http", "port": _PORT}]})
        for name in ("by-address", "by-name", "by-endpoints")
    ]
    for name, more in (("by-address", {}), ("by-name", {"targetRef": target})):
        found = object_of(
            "discovery.k8s.io/v1",
            "EndpointSlice",
            name,
            addressType="IPv4",
            endpoints=[{"addresses": [address], "conditions": {"ready": True}, **more}],
            ports=[{"name": "http", "port": _PORT, "protocol": "TCP"}],
        )
        found["metadata"]["labels"] = {"kubernetes.io/service-name": name}
        made.append(found)
    subset = {"addresses": [{"ip": address}], "ports": [{"name": "http", "port": _PORT}]}
    return [*made, object_of("v1", "Endpoints", "by-endpoints", subsets=[subset])]


def _inherit(shop: Shop, node: str, address: str) -> None:
    """Start a server on the node with this address, which its last pod gives back."""
    (found,) = (each.node for each in shop.ring.nodes if each.name == node)
    numbers = iter(range(100))

    def try_start() -> bool:
        if not found.give_next(address):
            return False
        name = f"heir-{next(numbers)}"
        spec = {**_SERVER, "nodeSelector": {"kubernetes.io/hostname": node}}
        shop.apply(pod(name, spec, labels={"app": name}))
        (heir,) = shop.wait_running(f"app={name}")
        return bool(heir["status"]["podIP"] == address)

    shop.wait(f"a pod has {address}", try_start)


def _leaders(slices: list[JsonObject], address: str) -> set[str]:
    """The Services whose slices name the address."""
    return {
        each["metadata"]["labels"]["kubernetes.io/service-name"]
        for each in slices
        if any(address in endpoint["addresses"] for endpoint in each.get("endpoints") or [])
    }


def _is_refused(shop: Shop, kind: str, name: str, address: str) -> bool:
    return address in shop.reports(kind, name, "SyncRefused")


def _ready(slices: list[JsonObject]) -> set[str]:
    return {
        address
        for each in slices
        for endpoint in each.get("endpoints") or []
        if endpoint["conditions"].get("ready")
        for address in endpoint["addresses"]
    }
