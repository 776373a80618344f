# SPDX-License-Identifier: Apache-2.0
"""Services and slices in the super cluster, and pods whose guests they are for.

Does by hand what a syncer and the controllers would: Services have no selector.
"""

from __future__ import annotations

import itertools
import secrets
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tenancy import keys
from tests.k8s.ring.api import JsonObject, KubernetesApi
from tests.k8s.ring.cluster import Ring
from tests.k8s.ring.pods import HTTP_PORT, container
from tests.k8s.ring.processes import RingError, wait_for
from tests.k8s.ring.tenants import RingTenant

PORT = 80
_STARTED_S = 40.0


@dataclass(frozen=True, slots=True)
class RingService:
    """A Service of the super cluster with one slice."""

    api: KubernetesApi
    namespace: str
    name: str
    ip: str

    def lead_to(self, *addresses: str, port: int = HTTP_PORT) -> None:
        """Let it have these endpoints."""
        slices = f"/apis/discovery.k8s.io/v1/namespaces/{self.namespace}/endpointslices"
        value = {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": f"{self.name}-1",
                "labels": {"kubernetes.io/service-name": self.name},
            },
            "addressType": "IPv4",
            "endpoints": [{"addresses": [ip], "conditions": {"ready": True}} for ip in addresses],
            "ports": [{"name": "http", "protocol": "TCP", "port": port}],
        }
        if not self.api.create(slices, value, may_exist=True):
            self.api.put(f"{slices}/{self.name}-1", value)

    def delete(self) -> None:
        self.api.delete(f"/apis/discovery.k8s.io/v1/namespaces/{self.namespace}/endpointslices/{self.name}-1")
        self.api.delete(f"/api/v1/namespaces/{self.namespace}/services/{self.name}")


@contextmanager
def service(
    ring: Ring, tenant: RingTenant, *addresses: str, own_ip: str = "", network: str = ""
) -> Iterator[RingService]:
    """A Service of a tenant in its `default`, with the cluster IP `own_ip` in its own control plane.

    Without a `network` it is the default one's.
    """
    api, namespace = ring.super_cluster.api, tenant.super_namespace("default")
    name = f"s-{secrets.token_hex(3)}"
    annotations = {keys.CLUSTER: tenant.key, keys.NAMESPACE: "default"}
    if own_ip:
        annotations[keys.CLUSTER_IP] = own_ip
    value = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "annotations": annotations, "labels": network_label(network)},
        "spec": {"ports": [{"name": "http", "port": PORT, "protocol": "TCP"}]},
    }
    made = api.create(f"/api/v1/namespaces/{namespace}/services", value)
    found = RingService(api, namespace, name, made["spec"]["clusterIP"])
    try:
        found.lead_to(*addresses)
        yield found
    finally:
        found.delete()


@dataclass(frozen=True, slots=True)
class TenantPod:
    """A pod of a tenant in the super cluster."""

    ring: Ring
    namespace: str
    name: str

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"

    def status(self) -> JsonObject:
        found: JsonObject = self.ring.super_cluster.api.get(self.path)["status"]
        return found

    def wait(self, phase: str) -> None:
        try:
            wait_for(
                f"pod {self.name} {phase}", lambda: self.status().get("phase") == phase, timeout_s=_STARTED_S
            )
        except RingError as error:
            log = self.ring.super_kubectl("logs", self.name, "--namespace", self.namespace)
            raise RingError(f"{error}: {self.status()}: {log.text}{log.error_text}") from None

    def log(self) -> str:
        return (
            self.ring.super_kubectl("logs", self.name, "--namespace", self.namespace, "-c", "main")
            .check()
            .text
        )

    def sh(self, script: str) -> tuple[int, str]:
        """Run a script in its container; return exit code and output."""
        command = ("exec", self.name, "--namespace", self.namespace, "-c", "main", "--", "sh", "-c", script)
        done = self.ring.super_kubectl(*command)
        return done.code, done.text + done.error_text

    def fetch(self, ip: str) -> str:
        """The page of a Service, or nc's error."""
        return self.sh(f"{_fetch(ip)} 2>&1")[1]


def network_label(network: str) -> dict[str, str]:
    """The label of a pod or a Service in a network other than the default one."""
    return {keys.ARKTOS_NETWORK: network} if network else {}


def pod_value(
    tenant: RingTenant, name: str, node: str, handler: str, spec: JsonObject, network: str = ""
) -> JsonObject:
    """The super pod of a tenant's pod in its `default`."""
    annotations = {keys.CLUSTER: tenant.key, keys.NAMESPACE: "default", keys.UID: secrets.token_hex(8)}
    runtime = {"runtimeClassName": handler} if handler else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations, "labels": network_label(network)},
        "spec": {"nodeName": node, "terminationGracePeriodSeconds": 0, **runtime, **spec},
    }


@contextmanager
def pod(ring: Ring, tenant: RingTenant, handler: str, spec: JsonObject) -> Iterator[TenantPod]:
    """A tenant's pod in the super cluster; it need not start."""
    made = TenantPod(ring, tenant.super_namespace("default"), f"g-{secrets.token_hex(3)}")
    value = pod_value(tenant, made.name, ring.node.name, handler, spec)
    ring.super_cluster.api.create(made.path.rpartition("/")[0], value)
    try:
        yield made
    finally:
        ring.super_cluster.api.delete(made.path)


def sleeper() -> JsonObject:
    """A pod that does nothing by itself."""
    return {"containers": [container("main", ["sleep", "100000"])]}


def first_connection(*ips: str) -> JsonObject:
    """A pod that first fetches these Services' pages, then prints how many SYNs were sent again."""
    return {"restartPolicy": "Never", "containers": [container("main", list(first_connection_command(*ips)))]}


def first_connection_command(*ips: str) -> Sequence[str]:
    """The same, as a command of the busybox image."""
    return ("sh", "-c", f"{'; '.join(map(_fetch, ips))}; grep ^TcpExt: /proc/net/netstat")


def _fetch(ip: str) -> str:
    """The last line of a page. Not wget: Debian's static one may crash where it looks for names."""
    return f"printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 5 {ip} {PORT} | tail -n 1"


def retransmitted(log: str) -> int:
    """How many SYN segments a network namespace sent again, from the two lines of /proc/net/netstat.

    Not all segments: data is sent again after 200 ms, and a busy node may answer later.
    """
    names, values = (line.split() for line in log.splitlines() if line.startswith("TcpExt:"))
    return int(values[names.index("TCPSynRetrans")])


def create_runtime_classes(ring: Ring, *handlers: str) -> None:
    """A RuntimeClass for each handler, called like it."""
    for handler in handlers:
        ring.super_cluster.api.create(
            "/apis/node.k8s.io/v1/runtimeclasses",
            {
                "apiVersion": "node.k8s.io/v1",
                "kind": "RuntimeClass",
                "metadata": {"name": handler},
                "handler": handler,
            },
            may_exist=True,
        )


def rules_in(namespace: Path) -> str:
    """All rules of a network namespace with their handles: every rule that is written gets a new one."""
    done = subprocess.run(
        ["nsenter", f"--net={namespace}", "nft", "--handle", "list", "ruleset"],
        capture_output=True,
        text=True,
        timeout=10,
        check=True,
    )
    return done.stdout


# So that no two of a test's changes lead to the same rules.
_NUMBERS = itertools.count(1)


def unused_address() -> str:
    """An address of no pod, another one each time."""
    number = next(_NUMBERS)
    return f"10.89.{number // 250}.{number % 250 + 1}"
