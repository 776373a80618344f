# SPDX-License-Identifier: Apache-2.0
"""Names of tenants from stock CoreDNS, looked up by runc pods' own C library.

Two tenants; the first has two networks, each with a server. A label names the network of a pod;
dnsconfig computes from it what the webhook puts into the pod's spec. All names are the tenant's own:
the super cluster calls every namespace by another name. docs/decisions/0013 explains why
`hostname.subdomain` works, and which part of it does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from dns_webhook.patch import spec_fields
from dnsconfig.cluster.objects import PodObject
from dnsconfig.cluster.state import ResolverSettings
from dnsconfig.resolve.decision import decide, node_dns_of
from tenancy import keys
from tests.cluster_states import cluster_state_of, decode_object
from tests.k8s.ring.api import JsonObject
from tests.k8s.ring.cluster import Ring
from tests.k8s.ring.coredns import NetworkDns, serving_names
from tests.k8s.ring.dns_servers import DOMAIN
from tests.k8s.ring.pods import container
from tests.k8s.ring.processes import wait_for
from tests.k8s.ring.tenants import RingTenant

pytestmark = pytest.mark.timeout(300)

NAMESPACE = "shop"
PORT = 8080
_CHANGED_S = 30.0

# The machine's C library in the pod: the busybox image has one that cannot look up names.
_LIBRARY = [("usr", "/usr", "/usr"), ("lib", "/usr/lib", "/lib"), ("lib64", "/usr/lib64", "/lib64")]


@dataclass(frozen=True, slots=True)
class ServedNetwork:
    """A network of a tenant, its server, and one pod in it that is behind no Service."""

    ring: Ring
    dns: NetworkDns

    @property
    def tenant(self) -> RingTenant:
        return self.dns.tenant

    def pod(self, name: str, labels: Mapping[str, str] | None = None, **spec: object) -> None:
        """Start a pod of this network, in both clusters."""
        labels = {keys.ARKTOS_NETWORK: self.dns.network, **(labels or {})}
        main = container("main", ["sleep", "100000"])
        main["volumeMounts"] = [
            {"name": n, "mountPath": inside, "readOnly": True} for n, _, inside in _LIBRARY
        ]
        volumes = [{"name": n, "hostPath": {"path": path}} for n, path, _ in _LIBRARY]
        # As VirtualCluster's syncer: without a subdomain the kubelet writes no line with the super
        # namespace into the pod's /etc/hosts.
        changed = {"subdomain": "", **self._resolver(labels)}
        value = {"containers": [main], "volumes": volumes, **spec}
        self.ring.syncer.create_pod(self.tenant, NAMESPACE, name, value, labels=labels, changed=changed)

    def delete_pod(self, name: str) -> None:
        self.ring.syncer.delete_pod(self.tenant, NAMESPACE, name)

    def service(self, name: str, app: str, **spec: object) -> JsonObject:
        """Make a Service of this network, in the tenant's cluster."""
        value = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "labels": {keys.ARKTOS_NETWORK: self.dns.network}},
            "spec": {
                "selector": {"app": app},
                "ports": [{"name": "http", "port": PORT, "protocol": "TCP"}],
                **spec,
            },
        }
        return self.tenant.api.create(f"/api/v1/namespaces/{NAMESPACE}/services", value)

    def wait_ready(self, name: str) -> str:
        """Wait for a pod and its status in the tenant; return its address."""
        self.ring.syncer.wait_status(self.tenant, NAMESPACE, name, _is_ready)
        pod = self.tenant.api.get(f"/api/v1/namespaces/{NAMESPACE}/pods/{name}")
        address: str = pod["status"]["podIP"]
        return address

    def sh(self, script: str, pod: str = "asker") -> tuple[int, str]:
        """Run a script in a pod's container."""
        where = ("--namespace", self.tenant.super_namespace(NAMESPACE), "-c", "main")
        done = self.ring.super_kubectl("exec", pod, *where, "--", "sh", "-c", script)
        return done.code, done.text

    def addresses(self, name: str, pod: str = "asker") -> set[str]:
        """The result of getaddrinfo; empty for an unknown name."""
        _, text = self.sh(f"/usr/bin/getent ahostsv4 {name}", pod)
        return {line.split()[0] for line in text.splitlines()}

    def names(self, address: str) -> set[str]:
        """The result of getnameinfo."""
        _, text = self.sh(f"/usr/bin/getent hosts {address}")
        return {name for line in text.splitlines() for name in line.split()[1:]}

    def wait_addresses(self, name: str, *expected: str) -> None:
        """Slices come a little after pods, CoreDNS after them."""
        wait_for(f"{name} is {expected}", lambda: self.addresses(name) == set(expected), timeout_s=_CHANGED_S)

    def _resolver(self, labels: Mapping[str, str]) -> JsonObject:
        key = self.tenant.key
        owners = {keys.CLUSTER: key}
        system = self.tenant.super_namespace("kube-system")
        own = self.tenant.super_namespace(NAMESPACE)
        named = {keys.ARKTOS_NETWORK: self.dns.network}
        state = cluster_state_of(
            [
                _object("Namespace", name=own, annotations=owners | {keys.NAMESPACE: NAMESPACE}),
                _object("Namespace", name=system, annotations=owners | {keys.NAMESPACE: "kube-system"}),
                _object("Service", name=f"kube-dns-{self.dns.network}", namespace=system, labels=named)
                | {"spec": {"clusterIP": self.dns.address}},
                _object("Network", name=self.dns.network, namespace=system)
                | {"apiVersion": "arktos.futurewei.com/v1", "status": {"phase": "Ready"}},
            ],
            ResolverSettings(DOMAIN),
        )
        annotations = owners | {keys.NAMESPACE: NAMESPACE, keys.UID: "any"}
        value = decode_object(
            _object("Pod", name="any", uid="any", namespace=own, labels=dict(labels), annotations=annotations)
        )
        assert isinstance(value, PodObject)
        decision = decide(value, state, node_dns_of(""))
        assert decision is not None
        assert decision.lines is not None, decision.waiting
        return spec_fields(decision.lines)


@dataclass(frozen=True, slots=True)
class CoreDnsNetworks:
    red: ServedNetwork
    blue: ServedNetwork
    other_red: ServedNetwork
    ips: Mapping[str, str]


@pytest.fixture(scope="module")
def networks(ring: Ring, acme: RingTenant, acme_x: RingTenant) -> Iterator[CoreDnsNetworks]:
    """`api` and `db` in three networks; in the first `db` has two pods with names of their own."""
    servers = (
        NetworkDns(acme, "red", "10.70.0.21"),
        NetworkDns(acme, "blue", "10.70.0.22"),
        NetworkDns(acme_x, "red", "10.70.0.23"),
    )
    with ExitStack() as stack:
        for tenant in (acme, acme_x):
            ring.syncer.create_namespace(tenant, NAMESPACE)
        stack.enter_context(serving_names(ring, servers))
        red, blue, other = (ServedNetwork(ring, each) for each in servers)
        expected = [
            *((red, f"db-{n}", {"app": "db"}, {"hostname": f"db-{n}", "subdomain": "db"}) for n in (0, 1)),
            (other, "db-0", {"app": "db"}, {"hostname": "db-0", "subdomain": "db"}),
            (red, "asker", {}, {}),
            (blue, "blue-asker", {}, {}),
            (other, "asker", {}, {}),
        ]
        for served, name, labels, spec in expected:
            served.pod(name, labels, **spec)
            stack.callback(served.delete_pod, name)
        for served in (red, other):
            served.service("db", "db", clusterIP="None")
        # Nothing is behind these: an address that is behind two Services has any of two reverse names.
        ips = {
            "red api": red.service("api", "web")["spec"]["clusterIP"],
            "blue web": blue.service("web", "web")["spec"]["clusterIP"],
            "other api": other.service("api", "web")["spec"]["clusterIP"],
        }
        for served, name, _, _ in expected:
            ips[f"{served.tenant.key} {name}"] = served.wait_ready(name)
        yield CoreDnsNetworks(red, blue, other, ips)


def test_services_by_the_search_list(networks: CoreDnsNetworks) -> None:
    ip = networks.ips["red api"]
    for name in ("api", "api.shop", "api.shop.svc", f"api.shop.svc.{DOMAIN}", f"api.shop.svc.{DOMAIN}."):
        networks.red.wait_addresses(name, ip)
    assert not networks.red.addresses("nothing")


def test_headless_services_and_their_pods(networks: CoreDnsNetworks) -> None:
    key = networks.red.tenant.key
    zero, one = networks.ips[f"{key} db-0"], networks.ips[f"{key} db-1"]
    networks.red.wait_addresses("db", zero, one)
    for name in ("db-0.db", "db-0.db.shop.svc", f"db-0.db.shop.svc.{DOMAIN}"):
        networks.red.wait_addresses(name, zero)
    networks.red.wait_addresses("db-1.db", one)
    # The conformance test's lookup: its own name, in the pod itself.
    assert networks.red.addresses(f"db-0.db.shop.svc.{DOMAIN}", "db-0") == {zero}
    assert networks.red.addresses("db-0", "db-0") == {zero}
    hosts = networks.red.sh("cat /etc/hosts", "db-0")[1]
    assert f"{zero}\tdb-0" in hosts
    assert networks.red.tenant.super_namespace(NAMESPACE) not in hosts


def test_srv_and_reverse(networks: CoreDnsNetworks) -> None:
    key = networks.red.tenant.key
    networks.red.wait_addresses("db-1.db", networks.ips[f"{key} db-1"])
    srv = networks.red.sh(f"nslookup -type=srv _http._tcp.db.shop.svc.{DOMAIN}")[1]
    found = {line.split("=")[1].strip() for line in srv.splitlines() if "service =" in line}
    targets = {line.rsplit(" ", 2)[1:][0] + " " + line.rsplit(" ", 1)[1] for line in found}
    assert targets == {f"{PORT} db-{n}.db.shop.svc.{DOMAIN}" for n in (0, 1)}, srv
    assert networks.red.names(networks.ips[f"{key} db-0"]) == {f"db-0.db.shop.svc.{DOMAIN}"}
    assert networks.red.names(networks.ips["red api"]) == {f"api.shop.svc.{DOMAIN}"}


def test_names_of_other_networks_and_tenants_do_not_resolve(networks: CoreDnsNetworks) -> None:
    """Names of another network, of another tenant, and the super cluster's names of one's own objects."""
    blue = ServedNetwork(networks.blue.ring, networks.blue.dns)
    assert blue.addresses("web", "blue-asker") == {networks.ips["blue web"]}
    assert not blue.addresses("api", "blue-asker")
    assert not blue.addresses("db-0.db", "blue-asker")
    assert not networks.red.addresses("web")
    key = networks.other_red.tenant.key
    networks.other_red.wait_addresses("db-0.db", networks.ips[f"{key} db-0"])
    networks.other_red.wait_addresses("api", networks.ips["other api"])
    assert not networks.other_red.addresses("db-1.db")
    for name in (f"db-0.db.{networks.red.tenant.super_namespace(NAMESPACE)}", "web.default"):
        assert not networks.red.addresses(f"{name}.svc.{DOMAIN}")


def test_recreated_pod_resolves_again(networks: CoreDnsNetworks) -> None:
    red, key = networks.red, networks.red.tenant.key
    zero = networks.ips[f"{key} db-0"]
    red.pod("db-2", {"app": "db"}, hostname="db-2", subdomain="db")
    try:
        two = red.wait_ready("db-2")
        red.wait_addresses("db-2.db", two)
    finally:
        red.delete_pod("db-2")
    red.wait_addresses("db-2.db")
    red.wait_addresses("db", zero, networks.ips[f"{key} db-1"])


def _is_ready(pod: JsonObject) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _object(kind: str, **metadata: object) -> JsonObject:
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata}
