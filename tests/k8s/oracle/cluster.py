# SPDX-License-Identifier: Apache-2.0
"""A kube-apiserver for Services alone, on the ring's etcd: no kubelet, no controllers, no other writer."""

import http.client
import json
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from devkit.pki import Authority
from tests.cases.services.namespace import ThreadedNamespace
from tests.k8s.oracle.draw import Json
from tests.k8s.ring.api import TlsEndpoint
from tests.k8s.ring.cluster import Ring
from tests.k8s.ring.controlplane import start_apiserver
from tests.k8s.ring.network import NetworkNamespace
from tests.k8s.ring.processes import RingError, run

SERVICE_CIDRS = ("10.96.0.0/16", "fd00:10:96::/112")
_ADDRESS = "10.70.2.1"
_RESPONSE_S = 30.0
# The API server closes a connection that is idle for 90 s.
_IDLE_S = 30.0
# Where ports swap their numbers, the API server can allocate one node port twice, and then returns 500.
_QUIRK = b"duplicate nodePort"
_REFUSED = (http.HTTPStatus.UNPROCESSABLE_ENTITY, http.HTTPStatus.BAD_REQUEST)


class InvalidObjectError(Exception):
    """The API server refused the object as invalid."""


@dataclass(frozen=True, slots=True)
class OracleCluster:
    """`directory` is the ring's, for the files of its programs."""

    directory: Path
    control: NetworkNamespace
    kubeconfig: Path
    api: "Api"


class Api:
    """Writes on one connection, thousands of times."""

    def __init__(self, endpoint: TlsEndpoint) -> None:
        self._endpoint = endpoint
        self._connection: http.client.HTTPConnection | None = None
        self._used_at = 0.0

    def create(self, path: str, value: Json) -> Json:
        return self._call("POST", path, value, "application/json")

    def put(self, path: str, value: Json) -> Json:
        return self._call("PUT", path, value, "application/json")

    def patch(self, path: str, value: Json) -> Json:
        """With a JSON merge patch."""
        return self._call("PATCH", path, value, "application/merge-patch+json")

    def delete(self, path: str) -> None:
        self._call("DELETE", path, {}, "application/json")

    def get(self, path: str) -> Json:
        return self._call("GET", path, None, "application/json")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _call(self, method: str, path: str, value: Json | None, kind: str) -> Json:
        """Raises InvalidObjectError, and RingError for any other error."""
        connection = self._connection
        if connection is not None and time.monotonic() - self._used_at > _IDLE_S:
            connection.close()
            connection = None
        if connection is None:
            connection = http.client.HTTPConnection(self._endpoint.address, timeout=_RESPONSE_S)
            connection.sock = self._endpoint.dial(timeout_s=_RESPONSE_S)
            self._connection = connection
        body = None if value is None else json.dumps(value).encode()
        connection.request(method, path, body, {"Content-Type": kind})
        response = connection.getresponse()
        text = response.read()
        self._used_at = time.monotonic()
        if response.will_close:
            connection.close()
            self._connection = None
        if response.status in _REFUSED or _QUIRK in text:
            raise InvalidObjectError(json.loads(text).get("message", ""))
        if response.status >= http.HTTPStatus.BAD_REQUEST:
            raise RingError(f"{method} {path}: {response.status} {text[:500]!r}")
        found: Json = json.loads(text)
        return found


def start_cluster(ring: Ring, stack: ExitStack) -> OracleCluster:
    """Start its API server in the ring's control namespace; `stack` stops it. Raises RingError."""
    control = NetworkNamespace(ring.control.name, _ADDRESS)
    run(["ip", "-n", control.name, "addr", "add", f"{_ADDRESS}/32", "dev", "lo"])
    stack.callback(run, ["ip", "-n", control.name, "addr", "del", f"{_ADDRESS}/32", "dev", "lo"])
    made = start_apiserver(
        "oracle",
        control,
        _ADDRESS,
        ring.binaries,
        ring.directory,
        authority=Authority.create("oracle"),
        service_cidrs=SERVICE_CIDRS,
    )
    stack.callback(made.daemon.stop)
    made.wait_ready()
    api = Api(made.api.endpoint)
    stack.callback(api.close)
    return OracleCluster(ring.directory, control, made.kubeconfig, api)


def link_node(cluster: OracleCluster, node: ThreadedNamespace, number: int) -> None:
    """Let a node's namespace reach the API server."""
    ours, its = f"node{number}", f"10.70.1.{number}"
    run(
        [
            *("ip", "-n", cluster.control.name, "link", "add", ours, "type", "veth"),
            *("peer", "name", "api0", "netns", node.path),
        ]
    )
    there = (f"link set {ours} up", f"route add {its}/32 dev {ours} src {_ADDRESS}")
    run(["ip", "-n", cluster.control.name, "-batch", "-"], stdin="\n".join(there).encode())
    here = ("link set api0 up", f"addr add {its}/32 dev api0", f"route add {_ADDRESS}/32 dev api0")
    node.run("ip", "-batch", "-", text="\n".join(here) + "\n")
