# SPDX-License-Identifier: Apache-2.0
"""vn-agent with tenants from VirtualClusters of a real super cluster, by the shipped definition and role."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml

from devkit.pki import Leaf
from tests.k8s.ring import virtual_clusters
from tests.k8s.ring.api import JsonObject, KubernetesApi
from tests.k8s.ring.cluster import NODE, Ring
from tests.k8s.ring.controlplane import write_kubeconfig
from tests.k8s.ring.processes import RingError, wait_for
from tests.k8s.ring.tenants import RingTenant
from tests.k8s.ring.virtual_clusters import VirtualClusterAgent

_ROOT = Path(__file__).resolve().parents[2]
_ROLE = _ROOT / "packaging" / "rbac" / "options" / "vn-agent-tenants.yaml"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_PORT = 10551
# Where the VirtualClusters are; their control planes are in the namespaces of their keys.
_HOME = "tenants"
_NOTICED_S = 10.0
# Issue: live connections of what is removed end within 5 s.
_CUT_S = 5.0
# A reflector whose API server was away retries after half a minute at most.
_BACK_S = 45.0


@dataclass(slots=True)
class ServedVirtualClusters:
    """A second vn-agent of the node, and the super cluster that its tenants come from."""

    ring: Ring
    agent: VirtualClusterAgent

    @property
    def api(self) -> KubernetesApi:
        return self.ring.super_cluster.api

    def line(self) -> str:
        """The line of /readyz about the tenants."""
        return self.agent.status("/readyz")[1].partition("\n")[0]

    def wait_for_line(self, text: str, timeout_s: float = _NOTICED_S) -> None:
        assert self.agent.daemon is not None
        try:
            self.agent.daemon.wait_until(lambda: text in self.line(), timeout_s=timeout_s)
        except RingError as error:
            raise RingError(f"/readyz does not show {text!r} but {self.line()!r}: {error}") from None

    def is_served(self, leaf: Leaf) -> bool:
        """Whether this client gets logs of the first tenant's pod, or is not known."""
        endpoint = replace(self.ring.agent_as(leaf), port=_PORT)
        try:
            reply = endpoint.request("GET", "/containerLogs/default/web/side")
        except OSError:
            return False
        assert reply.status in (200, 403), reply.text  # 403: a known authority, and no registered client
        return reply.status == 200

    def wait_served(self, leaf: Leaf, *, is_served: bool = True, timeout_s: float = _NOTICED_S) -> None:
        wait_for(f"served is {is_served}", lambda: self.is_served(leaf) is is_served, timeout_s=timeout_s)

    def create(self, tenant: RingTenant, leaf: Leaf) -> None:
        """What vc-manager makes: the namespace of the key, two Secrets, and a VirtualCluster that runs."""
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": tenant.key}}
        self.api.create("/api/v1/namespaces", namespace, may_exist=True)
        self.put_secret(tenant, "root-ca", tenant.apiserver.authority.cert_pem)
        self.put_secret(tenant, "apiserver-ca", leaf.cert_pem)
        self.api.create(virtual_clusters.path(_HOME), virtual_clusters.manifest(tenant.key))
        status = {"phase": "Running", "clusterNamespace": tenant.key}
        self.api.patch(f"{self._path(tenant)}/status", {"status": status})

    def put_secret(self, tenant: RingTenant, name: str, pem: bytes) -> None:
        data = {"tls.crt": _base64(pem), "tls.key": _base64(b"never read")}
        secret: JsonObject = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}}
        secret |= {"type": "kubernetes.io/tls", "data": data}
        path = f"/api/v1/namespaces/{tenant.key}/secrets"
        if not self.api.create(path, secret, may_exist=True):
            self.api.patch(f"{path}/{name}", {"data": data})

    def delete(self, tenant: RingTenant) -> None:
        self.api.delete(self._path(tenant))

    def _path(self, tenant: RingTenant) -> str:
        return virtual_clusters.path(_HOME, tenant.key)


@pytest.fixture(scope="module")
def source(ring: Ring) -> Iterator[ServedVirtualClusters]:
    """The agent, with the shipped role, in a super cluster that has no definition of VirtualClusters."""
    api = ring.super_cluster.api
    was_installed = virtual_clusters.is_served(api)
    if was_installed:
        virtual_clusters.uninstall(api)
    for document in yaml.safe_load_all(_ROLE.read_text()):
        api.create(f"{_RBAC}/{document['kind'].lower()}s", document, may_exist=True)
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _HOME}}
    api.create("/api/v1/namespaces", namespace, may_exist=True)
    directory = ring.directory / "virtual-clusters"
    directory.mkdir()
    user = ring.super_cluster.authority.issue(
        f"vcnode:vn-agent:{NODE}", organization="vcnode:vn-agents", usages=("client",)
    )
    endpoint = replace(api.endpoint, leaf=user)
    kubeconfig = write_kubeconfig(directory / "user", f"https://{endpoint.address}:{endpoint.port}", endpoint)
    agent = VirtualClusterAgent(NODE, ring.node.namespace, ring.agent.identity, directory, _PORT, kubeconfig)
    agent.start()
    try:
        yield ServedVirtualClusters(ring, agent)
    finally:
        agent.stop()
        if not was_installed:
            virtual_clusters.uninstall(api)


@pytest.fixture
def synced(
    source: ServedVirtualClusters, acme: RingTenant, acme_x: RingTenant
) -> Iterator[ServedVirtualClusters]:
    """The same with the shipped definition; what a test created is deleted again."""
    virtual_clusters.install(source.api)
    source.wait_for_line("tenants: ok", _BACK_S)
    yield source
    for tenant in (acme, acme_x):
        source.delete(tenant)
    wait_for("no tenant is left", lambda: _tenants(source) == [], timeout_s=_NOTICED_S)


def test_a_missing_definition_is_reported_with_the_remedy(source: ServedVirtualClusters) -> None:
    source.wait_for_line("404, VirtualClusters are not installed")
    assert source.agent.status("/readyz")[0] == 503
    assert source.line().startswith("tenants: not synced; cannot be read for ")
    assert "apply packaging/crds/virtualclusters.yaml" in source.line()
    virtual_clusters.install(source.api)
    source.wait_for_line("tenants: ok", _BACK_S)


def test_role_allows_reads_alone(source: ServedVirtualClusters) -> None:
    user = source.ring.super_cluster.authority.issue("u", organization="vcnode:vn-agents", usages=("client",))
    api = KubernetesApi(replace(source.api.endpoint, leaf=user))
    api.get("/api/v1/secrets?fieldSelector=metadata.name%3Droot-ca")
    for path in (
        "/api/v1/secrets",
        "/api/v1/secrets?fieldSelector=metadata.name%3Dadmin-kubeconfig",
        "/api/v1/configmaps",
        "/api/v1/pods",
        f"/api/v1/namespaces/{_HOME}/secrets/root-ca",
    ):
        with pytest.raises(RingError, match=": 403 "):
            api.get(path)


def test_tenants_come_rotate_and_go(
    synced: ServedVirtualClusters, acme: RingTenant, acme_x: RingTenant
) -> None:
    source = synced
    assert not source.is_served(acme.client)
    source.create(acme_x, acme_x.client)
    source.create(acme, acme.client)
    source.wait_served(acme.client)
    assert not source.is_served(acme.unregistered)
    # The Secret changes; the apiserver goes on to show the old certificate until it restarts.
    renewed = acme.apiserver.authority.issue("renewed", usages=("client",))
    source.put_secret(acme, "apiserver-ca", renewed.cert_pem)
    source.wait_served(renewed)
    assert source.is_served(acme.client)
    # It may go on to do so when the agent was restarted, too.
    rotations = source.agent.directory / "agent-state" / "rotations.json"
    wait_for("the rotation is saved", lambda: acme.client.spki_sha256 in rotations.read_text(), timeout_s=5)
    source.agent.stop()
    source.agent.start()
    source.wait_for_line("tenants: ok", _BACK_S)
    assert (source.is_served(acme.client), source.is_served(renewed)) == (True, True)
    # One that is deleted while the other stays is gone.
    source.delete(acme)
    source.wait_served(acme.client, is_served=False, timeout_s=_CUT_S)
    assert _tenants(source) == [acme_x.key]
    # And the last one too: the watch brought a DELETED event.
    source.delete(acme_x)
    wait_for("no tenant is left", lambda: _tenants(source) == [], timeout_s=_CUT_S)
    assert "tenants: ok" in source.line()


def test_tenants_are_served_without_the_apiserver(synced: ServedVirtualClusters, acme: RingTenant) -> None:
    source = synced
    source.create(acme, acme.client)
    source.wait_served(acme.client)
    daemon = source.ring.super_cluster.daemon
    daemon.stop()
    try:
        source.wait_for_line("tenants: stale")
        assert source.is_served(acme.client)
    finally:
        daemon.start_again()
        source.ring.super_cluster.wait_ready()
    source.wait_for_line("tenants: ok", _BACK_S)
    assert source.is_served(acme.client)


def test_an_empty_list_is_distrusted_until_release(synced: ServedVirtualClusters, acme: RingTenant) -> None:
    """After a restart the agent lists, and the list has none of the tenants that it serves."""
    source = synced
    source.create(acme, acme.client)
    source.wait_served(acme.client)
    wait_for("the state is saved", lambda: _is_saved(source, acme), timeout_s=5)
    for _ in range(2):
        source.agent.stop()
        source.delete(acme)
        source.agent.start()
        source.wait_for_line("tenants: degraded", _BACK_S)
        assert source.is_served(acme.client)
        assert source.agent.series("vcnode_vnagent_retained_tenants") == 1
    # Another object with its key is the tenant again: nothing is missing then.
    source.create(acme, acme.client)
    source.wait_for_line("tenants: ok")
    assert source.is_served(acme.client)
    source.agent.stop()
    source.delete(acme)
    source.agent.start()
    source.wait_for_line("tenants: degraded", _BACK_S)
    command = [sys.executable, "-m", "vcnode", "tenant", "release", "--yes", "--socket"]
    command.append(str(source.agent.socket))
    released = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=30, check=False)
    assert (released.returncode, released.stderr) == (0, "")
    assert not source.is_served(acme.client)
    assert "tenants: ok" in source.line()


def _tenants(source: ServedVirtualClusters) -> list[str]:
    found: list[str] = json.loads(source.agent.status("/status")[1])["tenants"]
    return found


def _is_saved(source: ServedVirtualClusters, tenant: RingTenant) -> bool:
    return tenant.key in (source.agent.directory / "agent-state" / "tenants.json").read_text()


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
