# SPDX-License-Identifier: Apache-2.0
"""What a tenant does on the new node, and what has to come of it: logs, a Service, a name's server."""

from __future__ import annotations

from collections.abc import Iterator

from tenancy import keys
from tests.k8s.ring import guests
from tests.k8s.ring.api import JsonObject
from tests.k8s.ring.pods import HTTP_PORT, container
from tests.k8s.ring.processes import RingError, wait_for
from tests.k8s.ring.tenants import RingTenant
from tests.systemd.site import NODE_ADDRESS, Site

DAEMONS = 4
PAGE = "page of shop"
NAMESPACE = "shop"
# By the runtime handler of that name: runc, whose guest is the pod's own network namespace.
_RUNTIME_CLASS = "kata"
_STARTED_S = 60.0
_SERVE = f"""
echo web-0 serves
mkdir -p /srv; echo {PAGE} > /srv/index.html
exec httpd -f -p {HTTP_PORT} -h /srv
"""
_ASK = """
printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 5 {address} 80 | tail -n 1
cat /etc/resolv.conf
exec sleep 100000
"""


def check_logs(site: Site, tenant: RingTenant) -> str:
    """Start the tenant's first pod and read its log. Raises `RingError` or `AssertionError`."""
    site.api.create("/apis/node.k8s.io/v1/runtimeclasses", runtime_class(_RUNTIME_CLASS))
    web: JsonObject = {"containers": [container("main", ["sh", "-c", _SERVE])]}
    site.syncer.create_pod(tenant, NAMESPACE, "web-0", web, labels={"app": "web"})
    site.syncer.wait_running(tenant, NAMESPACE, "web-0")
    logs = tenant.kubectl("logs", "web-0").check().text
    assert logs == "web-0 serves\n", logs
    return f"vn-agent: the tenant's kubectl logs web-0: {logs.strip()}"


def check(site: Site, tenant: RingTenant) -> Iterator[str]:
    """Ask `check_logs`' pod by a Service, from a guest; a line for each thing that works.

    Raises `RingError` or `AssertionError`.
    """
    address = _make_service(site, tenant)
    start_guest(site, tenant, "client", asking(address))
    yield site.booted.run("vcnode guests")

    lines = wait_for("the client's lines", lambda: client_lines(tenant, "client"), timeout_s=_STARTED_S)
    assert lines[0] == PAGE, lines
    yield f"kubeproxy-ext, kata-bridge: a guest's first connection, to the Service {address}: {lines[0]}"
    namespace = tenant.super_namespace("kube-system")
    server = site.api.get(f"/api/v1/namespaces/{namespace}/services/kube-dns-default")["spec"]["clusterIP"]
    assert f"nameserver {server}" in lines, lines
    assert "search shop.svc.cluster.local svc.cluster.local cluster.local" in " ".join(lines), lines
    yield f"dnsconfig: a ClusterFirst pod has its own network's server: nameserver {server}"


def start_guest(site: Site, tenant: RingTenant, name: str, script: str) -> None:
    """A pod whose rules come over the guest's agent; it runs when the start gate lets it.

    Raises `RingError`.
    """
    spec = guests.with_agent_at(
        site.directory,
        NODE_ADDRESS,
        {"containers": [container("main", ["sh", "-c", script])]},
    )
    start_pod(site, tenant, name, spec, _RUNTIME_CLASS)


def start_pod(site: Site, tenant: RingTenant, name: str, spec: JsonObject, handler: str) -> None:
    """A pod of that runtime handler; it runs when the start gate lets it. Raises `RingError`."""
    site.syncer.create_pod(tenant, NAMESPACE, name, spec, changed={"runtimeClassName": handler})
    try:
        site.syncer.wait_running(tenant, NAMESPACE, name)
    except RingError as error:
        status = site.syncer.super_pod(tenant, NAMESPACE, name)["status"]
        raise RingError(f"{error}: {status}") from None


def runtime_class(handler: str) -> JsonObject:
    """The RuntimeClass of a handler, by its name."""
    return {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": handler},
        "handler": handler,
    }


def asking(address: str) -> str:
    """What a pod runs to ask the Service at once, and to print its resolv.conf."""
    return _ASK.format(address=address)


def service_address(site: Site, tenant: RingTenant) -> str:
    """The cluster IP of the Service that `check` has made."""
    namespace = tenant.super_namespace(NAMESPACE)
    address: str = site.api.get(f"/api/v1/namespaces/{namespace}/services/web")["spec"]["clusterIP"]
    return address


def _make_service(site: Site, tenant: RingTenant) -> str:
    """A Service of the tenant's, brought down as a syncer does; returns its cluster IP."""
    namespace = tenant.super_namespace(NAMESPACE)
    made = site.api.create(
        f"/api/v1/namespaces/{namespace}/services",
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "name": "web",
                "annotations": {keys.CLUSTER: tenant.key, keys.NAMESPACE: NAMESPACE},
            },
            "spec": {
                "selector": {"app": "web"},
                "ports": [{"name": "http", "port": 80, "targetPort": HTTP_PORT}],
            },
        },
    )
    address: str = made["spec"]["clusterIP"]
    slices = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
    wait_for(
        "the Service has an endpoint",
        lambda: any(each.get("endpoints") for each in site.api.get(slices)["items"]),
        timeout_s=_STARTED_S,
    )
    return address


def client_lines(tenant: RingTenant, name: str) -> list[str]:
    """What such a pod has printed; nothing before all of it is there."""
    lines = tenant.kubectl("logs", name, "-c", "main").check().text.splitlines()
    return lines if any(line.startswith("nameserver") for line in lines) else []
