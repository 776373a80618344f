# SPDX-License-Identifier: Apache-2.0
"""Tenants and pods of a super cluster over TLS, with the least role."""

import asyncio
import contextlib
import gc
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

import pytest

import vnagent.sources.super_cluster
from daemonkit.kube.client import Client
from daemonkit.kube.resources import CONFIG_MAPS, PODS, SECRETS, VIRTUAL_CLUSTERS
from devkit.kube.apiserver import FakeApiserver, Seen
from devkit.pki import Authority, Leaf
from tenancy.ownership import ContainerPolicy, Owned
from tenancy.registry import Bad
from tenancy.tenant import Role, Tenant
from tests.waiting import until
from vnagent.sources.super_tenants import SuperTenants
from vnagent.tenants.reading import TenantsReading
from vnagent.tenants.virtualcluster import CertificateSecret, key_of_source

pytestmark = [pytest.mark.functional, pytest.mark.asyncio]

# What the role in super_tenants' docstring allows, and the node authorizer's rule for pods.
ALLOWED = {
    (VIRTUAL_CLUSTERS, ""),
    (SECRETS, "root-ca"),
    (SECRETS, "apiserver-ca"),
    (CONFIG_MAPS, "vn-agent-clients"),
}
# Recognisable, so that it can be looked for in memory.
PRIVATE = b"-----BEGIN EC PRIVATE KEY-----\nthis-must-never-be-kept\n-----END EC PRIVATE KEY-----\n"


def authorize(seen: Seen) -> bool:
    if seen.resource == PODS:
        return seen.query.get("fieldSelector") == "spec.nodeName=n1"
    return seen.verb in ("list", "watch") and (seen.resource, seen.name) in ALLOWED


@contextlib.asynccontextmanager
async def running(*runs: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(run) for run in runs]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()


@contextlib.asynccontextmanager
async def super_cluster(directory: Path) -> AsyncIterator[tuple[FakeApiserver, Client]]:
    authority = Authority.create("super-cluster")
    server = FakeApiserver(authority=authority, client_ca_pem=authority.cert_pem, authorize=authorize)
    async with server:
        kubeconfig = directory / "kubeconfig"
        kubeconfig.write_text(server.kubeconfig(authority.issue("vn-agent", usages=["client"])))
        async with Client.from_kubeconfig(kubeconfig) as client:
            yield server, client


def to(published: list[Mapping[str, Tenant | Bad]]) -> Callable[[TenantsReading], None]:
    """What publishes the readings of a source there, by namespace and name."""

    def publish(reading: TenantsReading) -> None:
        published.append({"/".join(key_of_source(source)): each for source, each in reading.tenants.items()})

    return publish


def put_secret(server: FakeApiserver, key: str, name: str, pem: bytes) -> None:
    data = {"tls.crt": b64encode(pem).decode(), "tls.key": b64encode(PRIVATE).decode()}
    server.storage.put(SECRETS, {"metadata": {"name": name, "namespace": key}, "data": data})


def put_tenant(server: FakeApiserver, key: str) -> tuple[Authority, Leaf]:
    authority = Authority.create(key)
    leaf = authority.issue(key)
    put_secret(server, key, "root-ca", authority.cert_pem)
    put_secret(server, key, "apiserver-ca", leaf.cert_pem)
    metadata = {"name": "vc", "namespace": key}
    status = {"phase": "Running", "clusterNamespace": key}
    server.storage.put(VIRTUAL_CLUSTERS, {"metadata": metadata, "spec": {}, "status": status})
    return authority, leaf


async def test_tenants_are_watched_in_the_super_cluster(tmp_path: Path) -> None:
    published: list[Mapping[str, Tenant | Bad]] = []
    async with super_cluster(tmp_path) as (server, client):
        authority, leaf = put_tenant(server, "a")
        source = SuperTenants(client, to(published))
        async with running(source.run()):
            await until(lambda: published)
            registered = Tenant("a", (authority.der,), {leaf.spki_sha256: Role.APISERVER})
            assert published[-1] == {"a/vc": registered}
            put_tenant(server, "b")
            await until(lambda: isinstance(published[-1].get("b/vc"), Tenant))
            renewed = authority.issue("a")
            put_secret(server, "a", "apiserver-ca", renewed.cert_pem)
            both = {leaf.spki_sha256: Role.APISERVER, renewed.spki_sha256: Role.APISERVER}
            await until(lambda: published[-1]["a/vc"] == Tenant("a", (authority.der,), both))
            # During an outage of the super cluster the synced state stays, and its age grows.
            count = len(published)
            await server.stop()
            server.storage.delete(VIRTUAL_CLUSTERS, "b", "vc")
            assert len(published) == count
            await server.start()
            await until(lambda: set(published[-1]) == {"a/vc"})
            assert source.age_s() is not None
        assert all(authorize(seen) for seen in server.seen)


async def test_decoded_secrets_keep_no_private_key(tmp_path: Path) -> None:
    published: list[Mapping[str, Tenant | Bad]] = []
    async with super_cluster(tmp_path) as (server, client):
        put_tenant(server, "a")
        source = SuperTenants(client, to(published))
        async with running(source.run()):
            await until(lambda: published and server.watches == 4)
            marks = (PRIVATE, b64encode(PRIVATE), b"this-must-never-be-kept")
            reachable = [
                each
                for each in gc.get_objects()
                if str(type(each).__module__).startswith(("vnagent", "daemonkit.kube", "tenancy"))
            ]
            assert any(isinstance(each, CertificateSecret) for each in reachable)
            assert not any(mark in repr(each).encode() for each in reachable for mark in marks)


async def test_the_source_waits_for_its_kubeconfig(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(vnagent.sources.super_cluster, "RETRY_S", 0.05)
    tenants: list[Mapping[str, Tenant | Bad]] = []
    pods: list[tuple[Owned, ...]] = []
    late = tmp_path / "late"
    async with super_cluster(tmp_path) as (server, _):
        put_tenant(server, "a")
        sources = (
            vnagent.sources.super_cluster.tenants(late, to(tenants), {}),
            vnagent.sources.super_cluster.pods(
                late, "n1", ContainerPolicy(), lambda owned, _: pods.append(owned)
            ),
        )
        async with running(*(source.run() for source in sources)):
            reported = ""

            def logged(text: str) -> bool:
                nonlocal reported
                reported += capsys.readouterr().err
                return text in reported

            await until(lambda: logged("No such file or directory"))
            late.write_text("half a kubeconf")
            await until(lambda: logged("not a kubeconfig"))
            assert [source.age_s() for source in sources] == [None, None]
            (tmp_path / "kubeconfig").rename(late)
            await until(lambda: tenants and pods)
            assert list(tenants[-1]) == ["a/vc"]
            assert all(source.age_s() is not None for source in sources)
