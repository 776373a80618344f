# SPDX-License-Identifier: Apache-2.0
"""The Networks of one tenant, from attaching it to the end of a network; in virtual time."""

import asyncio

import pytest

from daemonkit.kube.client import UnreachableError
from daemonkit.kube.resources import ENDPOINT_SLICES, PODS, SERVICES, Resource
from daemonkit.tasks import Tasks
from devkit.kube.storage import Object, Selection, StatusError
from devkit.kube.transport import StorageTransport
from devkit.syncer.fake_control_plane import FakeControlPlane
from syncer.networks.controller import NetworkController
from syncer.networks.definition import CRD
from syncer.networks.objects import DEPLOYMENT, NETWORK, NetworkSettings

NETWORKS = NETWORK.resource
EVENTS = Resource("", "v1", "events")


class _Plane(FakeControlPlane):
    """A control plane that gives Services their addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.denied = ""
        self.conflicts: list[str] = []

    def _answer(self, method: str, path: str, params: object, value: Object, content_type: str) -> Object:
        if method in self.conflicts:
            self.conflicts.remove(method)
            raise StatusError(409, "Conflict", "the object has been modified")
        if self.denied and method == "POST" and path.endswith(self.denied):
            raise StatusError(403, "Forbidden", "services are not allowed")
        if method == "POST" and path.endswith("/services"):
            value["spec"]["clusterIP"] = "10.32.0.10"
        return super()._answer(method, path, params, value, content_type)  # type: ignore[arg-type]


class TenantEnvironment:
    def __init__(self, settings: NetworkSettings | None = None) -> None:
        self.plane = _Plane()
        self.transport = StorageTransport(self.plane.storage, cluster_scoped=[NETWORKS.plural])
        self.reports: list[tuple[str, str]] = []
        self.may_write = True
        self.controller = NetworkController(
            self.plane,
            self.transport,
            settings or NetworkSettings(),
            lambda reason, message: self.reports.append((reason, message)),
            may_write=lambda: self.may_write,
            wall=lambda: 1_795_612_800.0,
            jitter=lambda: 1.0,
        )
        self.tasks = Tasks("test")
        self.plane.storage.create(
            ENDPOINT_SLICES,
            {
                "metadata": {"name": "kubernetes", "namespace": "default"},
                "addressType": "IPv4",
                "endpoints": [{"addresses": ["192.0.2.10"]}],
                "ports": [{"name": "https", "protocol": "TCP", "port": 6443}],
            },
        )

    async def start(self, wait_s: float = 5.0) -> None:
        self.tasks.spawn(self.controller.run(), "controller")
        await asyncio.sleep(wait_s)

    async def close(self) -> None:
        await self.tasks.close(1.0)

    def add(self, name: str, kind: str = "flat", **meta: object) -> None:
        self.plane.storage.create(NETWORKS, {"metadata": {"name": name, **meta}, "spec": {"type": kind}})

    def network(self, name: str) -> Object:
        return self.plane.storage.get(NETWORKS, "", name)

    def status(self, name: str) -> object:
        return self.network(name).get("status")

    def writes(self) -> list[str]:
        return [each for each in self.plane.requests if not each.startswith("GET ")]

    def names(self, resource: Resource) -> list[str]:
        return [each["metadata"]["name"] for each in self.plane.storage.select(Selection(resource))]

    async def delete(self, name: str) -> None:
        await self.plane.request("DELETE", NETWORKS.path(None, name), {})


READY = {"phase": "Ready", "message": "", "dnsServiceIP": "10.32.0.10"}


@pytest.mark.asyncio
async def test_a_tenant_gets_its_default_network() -> None:
    environment = TenantEnvironment()
    await environment.start()
    assert environment.status("default") == READY
    assert environment.names(SERVICES) == ["kubernetes-default", "kube-dns-default"]
    assert environment.names(ENDPOINT_SLICES) == ["kubernetes", "kubernetes-default"]
    assert environment.names(DEPLOYMENT.resource) == ["coredns-default"]
    assert environment.reports == [("", ""), ("", "")]
    await environment.close()


@pytest.mark.asyncio
async def test_what_is_served_is_not_written_again() -> None:
    environment = TenantEnvironment()
    await environment.start()
    environment.plane.requests.clear()
    await asyncio.sleep(1300.0)
    assert environment.writes() == []
    assert len(environment.plane.requests) == 2 * 10  # two resyncs
    environment.plane.storage.delete(DEPLOYMENT.resource, "kube-system", "coredns-default")
    await asyncio.sleep(600.0)
    assert environment.writes() == ["POST /apis/apps/v1/namespaces/kube-system/deployments"]
    await environment.close()


@pytest.mark.asyncio
async def test_providers_networks_are_left_alone() -> None:
    environment = TenantEnvironment(NetworkSettings(makes_default=False))
    environment.add("blue", "mizar")
    await environment.start()
    assert (environment.writes(), environment.status("blue")) == ([], None)
    await environment.close()


@pytest.mark.asyncio
async def test_a_network_that_pods_use_waits_and_says_so() -> None:
    environment = TenantEnvironment()
    environment.add("blue")
    pod = {
        "metadata": {"name": "web-0", "namespace": "app", "labels": {"arktos.futurewei.com/network": "blue"}}
    }
    environment.plane.storage.create(PODS, pod)
    await environment.start()
    await environment.delete("blue")
    await asyncio.sleep(12.0)
    message = "it is deleted once no pod uses it; app/web-0 does"
    assert environment.status("blue") == {**READY, "phase": "Terminating", "message": message}
    assert ("NetworkInUse", f"Network blue: {message}") in environment.reports
    [event] = environment.plane.storage.select(Selection(EVENTS))
    assert (event["reason"], event["message"], event["involvedObject"]["name"]) == (
        "NetworkInUse",
        message,
        "blue",
    )
    environment.plane.storage.delete(PODS, "app", "web-0")
    await asyncio.sleep(12.0)
    assert environment.names(NETWORKS) == ["default"]
    assert environment.names(SERVICES) == ["kubernetes-default", "kube-dns-default"]
    await environment.close()


@pytest.mark.asyncio
async def test_pods_without_the_label_use_the_default_network() -> None:
    environment = TenantEnvironment()
    await environment.start()
    ours = {"arktos.futurewei.com/network": "default", "vcnode.io/managed-by": "vc-syncer"}
    environment.plane.storage.create(
        PODS, {"metadata": {"name": "coredns", "namespace": "kube-system", "labels": ours}}
    )
    environment.plane.storage.create(PODS, {"metadata": {"name": "web-0", "namespace": "app"}})
    await environment.delete("default")
    await asyncio.sleep(12.0)
    assert environment.names(NETWORKS) == ["default"]
    environment.plane.storage.delete(PODS, "app", "web-0")
    await asyncio.sleep(12.0)
    assert environment.names(NETWORKS) == []  # deleted by the tenant, it is not made again
    await environment.close()


@pytest.mark.asyncio
async def test_a_refused_service_fails_the_network_until_it_is_allowed() -> None:
    environment = TenantEnvironment()
    environment.plane.denied = "/services"
    await environment.start(10.0)
    text = "403 Forbidden: services are not allowed"
    assert environment.status("default") == {"phase": "Failed", "message": text}
    assert environment.reports[-1] == ("FailedProvision", f"Network default: {text}")
    environment.plane.denied = ""
    await asyncio.sleep(300.0)
    assert (environment.status("default"), environment.reports[-1]) == (READY, ("", ""))
    await environment.close()


@pytest.mark.asyncio
async def test_failures_and_conflicts_are_retried() -> None:
    environment = TenantEnvironment()
    environment.plane.failures = [UnreachableError("connect: refused")] * 3
    environment.plane.conflicts = ["PATCH", "PATCH"]
    await environment.start(30.0)
    assert (environment.status("default"), environment.reports[-1]) == (READY, ("", ""))
    await environment.close()


@pytest.mark.asyncio
async def test_a_missing_definition_is_reported() -> None:
    environment = TenantEnvironment(NetworkSettings(installs_crd=False))
    environment.plane.storage.absent.add(NETWORKS)
    await environment.start()
    expected = (
        "CustomResourceDefinition networks.arktos.futurewei.com is not installed: there are no networks"
    )
    await asyncio.sleep(400.0)
    assert environment.reports == [("NetworkCRDMissing", expected)]  # nothing is looked at meanwhile
    assert environment.writes() == []
    environment.plane.storage.absent.clear()
    await asyncio.sleep(40.0)
    assert environment.status("default") == READY
    assert environment.reports[1:] == [("", "")] * 2
    await environment.close()


@pytest.mark.asyncio
async def test_a_missing_definition_is_installed() -> None:
    environment = TenantEnvironment()
    environment.plane.storage.absent.add(NETWORKS)
    await environment.start()
    assert environment.names(CRD.resource) == ["networks.arktos.futurewei.com"]
    environment.plane.storage.absent.clear()
    await asyncio.sleep(9.0)  # at the latest after twice as long as it was absent for
    assert environment.status("default") == READY
    await environment.close()


@pytest.mark.asyncio
async def test_nothing_is_written_for_a_tenant_of_another_replica() -> None:
    environment = TenantEnvironment()
    environment.may_write = False
    environment.add("blue")
    await environment.start(30.0)
    assert environment.writes() == []
    environment.may_write = True
    await asyncio.sleep(30.0)
    assert environment.status("blue") == READY
    await environment.close()
