# SPDX-License-Identifier: Apache-2.0
"""What a tenant's administrator tries from its pods, by its API server, and with what it has signed."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import socket
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from devkit.pki import Leaf
from tests.k8s.operator import opened, policy_engine, running_pods, signing
from tests.k8s.operator.escapes import NAMESPACE, PATHS, DialledAddress
from tests.k8s.operator.opened import OpenedConnections
from tests.k8s.operator.tenants import OperatedTenant
from tests.k8s.operator.tokens import IssuedToken
from tests.k8s.ring.agent import AGENT_PORT
from tests.k8s.ring.api import JsonObject, KubernetesApi, TlsEndpoint
from tests.k8s.ring.processes import RingError, run, wait_for
from tests.k8s.syncer.cluster import SyncedRing
from tests.k8s.syncer.shops import agnhost, object_of, pod

pytestmark = pytest.mark.timeout(400)

Residents = tuple[OperatedTenant, OperatedTenant]
_METADATA = "169.254.169.254"
_METADATA_PORT = 80
_OPENED_S = 20.0


@pytest.fixture(scope="module")
def addresses(residents: Residents) -> Iterator[list[DialledAddress]]:
    """The neighbour's API server and etcd, the super cluster's API server, and an address of metadata."""
    neighbour = residents[1]
    ring = neighbour.ground.ring
    endpoint = neighbour.ground.api.endpoint
    with _metadata_service(ring):
        yield [
            DialledAddress("server", _pod(neighbour, "apiserver")["status"]["podIP"], 6443),
            DialledAddress("store", _pod(neighbour, "etcd")["status"]["podIP"], 2379),
            DialledAddress("super", endpoint.address, endpoint.port),
            DialledAddress("metadata", _METADATA, _METADATA_PORT),
        ]


def test_no_path_leads_out_of_the_fence(residents: Residents, addresses: list[DialledAddress]) -> None:
    """Without an engine nearly all of them do, so that this test can fail."""
    tenant = residents[0]
    api, server = tenant.api(), _pod(tenant, "apiserver")
    api.create("/api/v1/namespaces", object_of("v1", "Namespace", NAMESPACE), may_exist=True)
    ring = tenant.ground.ring
    (node,) = (each for each in ring.nodes if each.name == server["spec"]["nodeName"])
    with (
        opened.counted(node, server["status"]["podIP"], addresses) as connections,
        ThreadPoolExecutor(len(addresses)) as threads,
    ):
        found = dict(
            zip(addresses, threads.map(partial(_open_paths, api, connections), addresses), strict=True)
        )
        # Kubernetes has no endpoints of link-local addresses.
        closed = {("APIService", "metadata"), ("services/proxy", "metadata")}
        assert {
            (path, to.name) for to, paths in found.items() for path in PATHS if path not in paths
        } == closed
        with policy_engine.enforced(ring):
            for _ in threads.map(partial(_check_refused, api, connections), found.keys(), found.values()):
                pass
            _check_service(tenant)


def test_pods_reach_no_other_control_plane(residents: Residents, addresses: list[DialledAddress]) -> None:
    """Their own API server they do reach."""
    tenant = residents[0]
    own = DialledAddress("own", _pod(tenant, "apiserver")["status"]["podIP"], 6443)
    own_store = DialledAddress("store", _pod(tenant, "etcd")["status"]["podIP"], 2379)
    foreign = [each for each in addresses if each.name in ("server", "store")]
    assert all(_is_reached(tenant, to) for to in (own, own_store, *foreign))
    with policy_engine.enforced(tenant.ground.ring):
        assert _is_reached(tenant, own)
        assert [to for to in (own_store, *foreign) if _is_reached(tenant, to)] == []


def test_tokens_of_pods_open_their_own_tenant_alone(residents: Residents) -> None:
    tenant, neighbour = residents
    token = IssuedToken.issue(tenant)
    assert token.is_valid()
    for endpoint in (neighbour.api().endpoint, tenant.ground.api.endpoint):
        assert _status(replace(endpoint, leaf=None), {"Authorization": f"Bearer {token.text}"}) == 401


def test_nobody_is_signed_into_the_masters(residents: Residents) -> None:
    refused = signing.request(residents[0], "masters", "root", "system:masters")
    assert not isinstance(refused, Leaf)
    assert refused.status == 403


def test_what_a_tenant_signs_opens_no_other_server(residents: Residents) -> None:
    """With the names of the certificates that these servers do take."""
    tenant, neighbour = residents
    ring = tenant.ground.ring
    shown = x509.load_pem_x509_certificate(_secret(tenant, "apiserver-kubelet-client")["tls.crt"])
    (name,) = shown.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    signed = signing.request(tenant, "kubelet-client", str(name.value))
    assert isinstance(signed, Leaf)
    assert _status(replace(tenant.api().endpoint, leaf=signed)) == 403  # known, without rights
    for endpoint in (neighbour.api().endpoint, tenant.ground.api.endpoint):
        assert _status(replace(endpoint, leaf=signed)) == 401
    for node in ring.nodes:
        agent = TlsEndpoint(
            ring.control,
            node.node.namespace.address,
            AGENT_PORT,
            ring.authorities.agent_serving.cert_pem,
            _own(tenant, "apiserver-kubelet-client"),
        )
        assert _status(agent, path="/pods") == 200
        assert _status(replace(agent, leaf=signed), path="/pods") in (0, 401)
    for each in residents:
        store = TlsEndpoint(
            ring.control,
            _pod(each, "etcd")["status"]["podIP"],
            2379,
            _secret(each, "etcd-ca")["tls.crt"],
            _own(each, "apiserver-etcd-client"),
            server_name=f"etcd-0.etcd.{each.key}.svc",
        )
        assert _status(store, path="/version") == 200
        assert _status(replace(store, leaf=signed), path="/version") == 0


def test_keys_of_its_own_control_plane_are_not_mounted(residents: Residents) -> None:
    """A pod names them as Secrets of its namespace. There they are not, and it does not start."""
    tenant = residents[0]
    wanted = ("cluster-ca", "service-account-keys", "encryption-config", "operator-client")
    volumes = [{"name": each, "secret": {"secretName": each}} for each in wanted]
    container = agnhost("pause", volumeMounts=[{"name": each, "mountPath": f"/{each}"} for each in wanted])
    spec = {"containers": [container], "volumes": volumes, "terminationGracePeriodSeconds": 1}
    tenant.kubectl()("apply", "-f", "-", stdin=json.dumps(pod("thief", spec)).encode()).check()
    running_pods.start(tenant, "later", replicas=1)
    namespace = tenant.super_namespace("default")
    secrets = tenant.ground.api.get(f"/api/v1/namespaces/{namespace}/secrets")["items"]
    assert {each["metadata"]["name"] for each in secrets} & set(wanted) == set()
    assert tenant.api().get("/api/v1/namespaces/default/pods/thief")["status"]["phase"] == "Pending"
    tenant.kubectl()("delete", "pod/thief", "deployment/later").check()


def _is_reached(tenant: OperatedTenant, to: DialledAddress) -> bool:
    """Whether a pod of the tenant gets a connection."""
    command = ("/agnhost", "connect", f"{to.address}:{to.port}", "--timeout=3s")
    return tenant.kubectl()("exec", "deployment/web", "--", *command).code == 0


def _status(
    endpoint: TlsEndpoint, headers: dict[str, str] | None = None, *, path: str = "/api/v1/namespaces"
) -> int:
    """Of a request; 0 where there is no connection."""
    try:
        return endpoint.request("GET", path, headers=headers).status
    except (OSError, http.client.HTTPException):
        return 0


def _secret(tenant: OperatedTenant, name: str) -> dict[str, bytes]:
    found = tenant.ground.api.get(f"/api/v1/namespaces/{tenant.key}/secrets/{name}")["data"]
    return {key: base64.b64decode(value) for key, value in found.items()}


def _own(tenant: OperatedTenant, name: str) -> Leaf:
    """What the control plane shows itself: that is accepted, so that a refusal means something."""
    found = _secret(tenant, name)
    return Leaf.from_pem(found["tls.crt"], found["tls.key"])


def _open_paths(api: KubernetesApi, connections: OpenedConnections, to: DialledAddress) -> list[str]:
    """Those that lead to an address, one after the other: connections are counted for each address."""
    return [path for path in PATHS if _leads_there(api, connections, path, to)]


def _check_refused(
    api: KubernetesApi, connections: OpenedConnections, to: DialledAddress, paths: Sequence[str]
) -> None:
    """Each is tried, and leads nowhere."""
    connections.take(to)
    for path in paths:
        connections.take_tried(to)
        PATHS[path].dial(api, to)
        wait_for(f"{path} to {to} is tried", partial(connections.take_tried, to), timeout_s=_OPENED_S)
        assert connections.take(to) == 0, f"{path} leads to {to}"


def _leads_there(api: KubernetesApi, connections: OpenedConnections, path: str, to: DialledAddress) -> bool:
    """Whether the tenant's API server gets a connection on this path, with nothing in its way."""
    try:
        PATHS[path].prepare(api, to)
    except RingError:
        return False

    def dial() -> bool:
        PATHS[path].dial(api, to)
        return connections.take(to) > 0

    try:
        wait_for(f"{path} leads to {to}", dial, timeout_s=_OPENED_S)
    except RingError:
        return False
    return True


def _check_service(tenant: OperatedTenant) -> None:
    """What a control plane needs passes the fence."""
    kubectl = tenant.kubectl()
    kubectl("exec", "deployment/web", "--", "true").check()
    assert "Started HTTP server" in kubectl("logs", "deployment/web").check().text


@contextmanager
def _metadata_service(ring: SyncedRing) -> Iterator[None]:
    """Something that accepts connections there, as a cloud's metadata service does, and ends them at once."""
    run(["ip", "-n", ring.control.name, "addr", "add", f"{_METADATA}/32", "dev", "lo"])
    try:
        with (
            ThreadPoolExecutor(1) as thread,
            ring.control.socket(socket.AF_INET, socket.SOCK_STREAM) as listener,
        ):
            listener.bind((_METADATA, _METADATA_PORT))
            listener.listen(256)
            thread.submit(_accept, listener)
            try:
                yield
            finally:
                listener.shutdown(socket.SHUT_RDWR)
    finally:
        run(["ip", "-n", ring.control.name, "addr", "del", f"{_METADATA}/32", "dev", "lo"])


def _accept(listener: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the listener's end
        while True:
            listener.accept()[0].close()


def _pod(tenant: OperatedTenant, component: str) -> JsonObject:
    selector = f"app.kubernetes.io/component%3D{component}"
    found: Sequence[JsonObject] = tenant.ground.api.get(
        f"/api/v1/namespaces/{tenant.key}/pods?labelSelector={selector}"
    )["items"]
    return next(each for each in found if "deletionTimestamp" not in each["metadata"])
