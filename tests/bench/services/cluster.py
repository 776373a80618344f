# SPDX-License-Identifier: Apache-2.0
"""The super cluster of the bench: a real etcd and kube-apiserver, and clients that write into it."""

import http.client
import json
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from devkit.pki import Authority
from tests.bench.processes import RunError
from tests.bench.services import objects
from tests.k8s.build import Binaries
from tests.k8s.ring import network, traces
from tests.k8s.ring.api import JsonObject, TlsEndpoint
from tests.k8s.ring.controlplane import Apiserver, start_apiserver, start_etcd
from tests.k8s.ring.network import NetworkNamespace

NODE = "worker-1"
_CONTROL_ADDRESS, _NODE_ADDRESS = "10.70.0.1", "10.70.0.11"
# Enough to keep a kube-apiserver on two processors busy.
_WRITERS = 4
_REQUEST_S = 30.0


@dataclass(frozen=True, slots=True)
class Written:
    """When a write was about to be sent, and when its response had arrived. Of `time.monotonic`."""

    before_s: float
    responded_s: float


class Writer:
    """One connection to the apiserver that stays open. Not for several threads."""

    def __init__(self, endpoint: TlsEndpoint) -> None:
        self._connection = http.client.HTTPConnection(endpoint.address, endpoint.port, timeout=_REQUEST_S)
        self._connection.auto_open = 0
        self._connection.sock = endpoint.dial(timeout_s=_REQUEST_S)

    def close(self) -> None:
        self._connection.close()

    def send(self, method: str, path: str, value: JsonObject | None = None) -> Written:
        """Make one request. Raises RunError for an error response."""
        body = None if value is None else json.dumps(value).encode()
        before_s = time.monotonic()
        self._connection.request(method, path, body, {"Content-Type": "application/json"})
        reply = self._connection.getresponse()
        text = reply.read()
        responded_s = time.monotonic()
        if reply.status >= http.HTTPStatus.BAD_REQUEST:
            raise RunError(f"{method} {path}: {reply.status} {text[:500].decode(errors='replace')}")
        return Written(before_s, responded_s)

    def set_endpoints(self, namespace: str, service: str, tenant: str, addresses: Sequence[str]) -> Written:
        path = f"{objects.SLICES.format(namespace)}/{service}-1"
        return self.send("PUT", path, objects.endpoint_slice(service, tenant, addresses))


@dataclass(frozen=True, slots=True)
class BenchTenant:
    """A tenant's Services: name -> the endpoints that it was made with."""

    key: str
    namespace: str
    services: dict[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class BenchCluster:
    """The running cluster. `prefix` begins all names of this run."""

    directory: Path
    prefix: str
    control: NetworkNamespace
    node: NetworkNamespace
    apiserver: Apiserver
    addresses: objects.Addresses

    @property
    def kubeconfig(self) -> Path:
        return self.apiserver.kubeconfig

    def writer(self) -> Writer:
        return Writer(self.apiserver.api.endpoint)

    def create_tenants(self, keys: Sequence[str], services: int, endpoints: int) -> list[BenchTenant]:
        """Create tenants of one namespace each, all their Services, and the slices of these."""
        tenants = [self._tenant(key, services, endpoints) for key in keys]
        self._in_parallel(
            ("POST", objects.NAMESPACES, objects.namespace(tenant.namespace, tenant.key))
            for tenant in tenants
        )
        self._in_parallel(
            ("POST", objects.SERVICES.format(tenant.namespace), objects.service(name, tenant.key))
            for tenant in tenants
            for name in tenant.services
        )
        self._in_parallel(
            (
                "POST",
                objects.SLICES.format(tenant.namespace),
                objects.endpoint_slice(name, tenant.key, addresses),
            )
            for tenant in tenants
            for name, addresses in tenant.services.items()
        )
        return tenants

    def delete_tenants(self, tenants: Iterable[BenchTenant]) -> None:
        """Delete their Services and slices. Namespaces stay: no controller here would finalize them."""
        for tenant in tenants:
            self._in_parallel(
                ("DELETE", f"{path.format(tenant.namespace)}/{name}{suffix}", None)
                for name in tenant.services
                for path, suffix in ((objects.SLICES, "-1"), (objects.SERVICES, ""))
            )

    def _tenant(self, key: str, services: int, endpoints: int) -> BenchTenant:
        made = {
            f"service-{number:04d}": tuple(self.addresses.next() for _ in range(endpoints))
            for number in range(services)
        }
        return BenchTenant(key, f"{key}-default", made)

    def _in_parallel(self, requests: Iterable[tuple[str, str, JsonObject | None]]) -> None:
        all_requests = list(requests)

        def send(part: int) -> None:
            writer = self.writer()
            try:
                for request in all_requests[part::_WRITERS]:
                    writer.send(*request)
            finally:
                writer.close()

        with ThreadPoolExecutor(_WRITERS) as threads:
            for each in [threads.submit(send, part) for part in range(_WRITERS)]:
                each.result()


def start(binaries: Binaries, stack: ExitStack, log: Callable[[str], None]) -> BenchCluster:
    """Start etcd and kube-apiserver in a namespace beside the node's; `stack` takes it all down.

    Raises RingError, RunError.
    """
    directory, prefix = traces.open_directory(stack, "vcb")
    control = NetworkNamespace(f"{prefix}-cp", _CONTROL_ADDRESS)
    node = NetworkNamespace(f"{prefix}-node", _NODE_ADDRESS)
    stack.callback(network.delete, [control.name, node.name])
    network.create_pair(control, node, more=[])
    stack.callback(start_etcd(control, binaries, directory).stop)
    apiserver = start_apiserver(
        "super",
        control,
        _CONTROL_ADDRESS,
        binaries,
        directory,
        authority=Authority.create("super"),
    )
    stack.callback(apiserver.daemon.stop)
    apiserver.wait_ready()
    log("etcd and kube-apiserver run")
    cluster = BenchCluster(directory, prefix, control, node, apiserver, objects.Addresses())
    apiserver.api.create(objects.NODES, objects.node(NODE, _NODE_ADDRESS))
    return cluster
