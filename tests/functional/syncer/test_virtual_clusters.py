# SPDX-License-Identifier: Apache-2.0
"""VirtualClusters as the source of tenants: credentials, bad ones, and changes while the syncer runs."""

import base64
import hashlib
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest
import yaml

from daemonkit.kube.resources import NAMESPACES, SECRETS, Resource
from devkit.kube.storage import Object
from devkit.pki import Authority
from tenancy import keys
from tests.functional.syncer.virtual_clusters import VirtualClusters, encoded, virtual_clusters

pytestmark = pytest.mark.functional

UNUSABLE = "CredentialsUnusable"


def changed(kubeconfig: str, *, user: Mapping[str, object] | None = None, **cluster: str) -> str:
    """A kubeconfig with other fields of its cluster, or another user."""
    document = yaml.safe_load(kubeconfig)
    document["clusters"][0]["cluster"] |= cluster
    if user is not None:
        document["users"][0]["user"] = user
    return str(yaml.safe_dump(document))


def with_authority(kubeconfig: str, ca_data: str) -> str:
    document = yaml.safe_load(kubeconfig)
    document["clusters"][0]["cluster"]["certificate-authority-data"] = ca_data
    return str(yaml.safe_dump(document))


@pytest.mark.asyncio
async def test_credentials_are_found_where_upstream_puts_them(tmp_path: Path) -> None:
    async with virtual_clusters(tmp_path) as clusters:
        await clusters.add("annotated")
        plane = await clusters.add_plane("default")
        clusters.add_cluster("default")
        clusters.add_secret("default", "admin-kubeconfig", "admin-kubeconfig", plane.kubeconfig())
        plane = await clusters.add_plane("named")
        clusters.add_cluster("named", {keys.SECRET_ADMIN_KUBECONFIG: "acme-kubeconfig"})
        clusters.add_secret("named", "acme-kubeconfig", "value", plane.kubeconfig())
        await clusters.syncer.start()
        await clusters.until_synced("annotated", "default", "named")


@pytest.mark.asyncio
async def test_rotated_credentials_are_used_at_once(tmp_path: Path) -> None:
    async with virtual_clusters(tmp_path) as clusters:
        plane = await clusters.add_plane("acme")
        plane.server.tokens = frozenset({"first"})
        clusters.add_cluster("acme")
        kubeconfig = plane.server.kubeconfig(token="first")
        clusters.add_secret("acme", "admin-kubeconfig", "admin-kubeconfig", kubeconfig)
        await clusters.syncer.start()
        await clusters.until_synced("acme")
        process = clusters.syncer.process
        plane.server.tokens = frozenset({"second"})
        plane.server.end_watches()
        secret = clusters.super.get(SECRETS, "t-acme", "admin-kubeconfig")
        assert secret is not None
        secret["data"]["admin-kubeconfig"] = encoded(plane.server.kubeconfig(token="second"))
        clusters.super.server.storage.replace(SECRETS, secret)
        await clusters.until_follows("acme", "after-rotation")
        assert clusters.syncer.process is process


@pytest.mark.asyncio
async def test_the_certificate_in_use_is_reported(tmp_path: Path) -> None:
    """By its digest: vc-operator waits for it before the one of before is refused."""
    async with virtual_clusters(tmp_path) as clusters:
        plane = await clusters.add_plane("acme")
        leaves = [plane.authority.issue("syncer") for _ in range(2)]
        clusters.add_cluster("acme")
        kubeconfigs = [plane.server.kubeconfig(each) for each in leaves]
        clusters.add_secret("acme", "admin-kubeconfig", "admin-kubeconfig", kubeconfigs[0])
        await clusters.syncer.start()
        await clusters.until_synced("acme")
        for leaf, kubeconfig in zip(leaves, kubeconfigs, strict=True):
            secret = clusters.super.get(SECRETS, "t-acme", "admin-kubeconfig")
            assert secret is not None
            secret["data"]["admin-kubeconfig"] = encoded(kubeconfig)
            clusters.super.server.storage.replace(SECRETS, secret)
            expected = ("True", hashlib.sha256(leaf.cert_pem).hexdigest()[:32])
            await clusters.syncer.until(
                partial(lambda wanted: clusters.condition("acme", keys.CREDENTIAL_IN_USE) == wanted, expected)
            )


@pytest.mark.asyncio
async def test_bad_credentials_are_a_condition_and_no_more(tmp_path: Path) -> None:
    async with virtual_clusters(tmp_path) as clusters:
        await clusters.add("good")
        plane = await clusters.add_plane("bad")
        text = plane.kubeconfig()
        exec_plugin = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/sh"}}
        files = {"tokenFile": "/etc/shadow"}
        bad = {
            "garbage": encoded("\x00{{{"),
            "no-base64": "%%%",
            "empty": "",
            "plugin": encoded(changed(text, user=exec_plugin)),
            "files": encoded(changed(text, user=files)),
            "super": encoded(clusters.super.kubeconfig()),
            "named-super": encoded(
                changed(clusters.super.kubeconfig(), server=f"https://localhost:{clusters.super.server.port}")
            ),
        }
        for name, annotation in bad.items():
            clusters.add_cluster(name, {keys.ADMIN_KUBECONFIG: annotation})
        clusters.add_cluster("without")
        await clusters.syncer.start()
        await clusters.until_synced("good")
        for name in (*bad, "without"):
            await clusters.syncer.until(partial(clusters.has_condition, name, UNUSABLE))
        messages = {name: clusters.condition(name, UNUSABLE)[1] for name in (*bad, "without")}
        assert messages["without"] == "Secret t-without/admin-kubeconfig does not exist"
        for name in ("super", "named-super"):
            assert messages[name] == "the kubeconfig leads to the super cluster itself; give the tenant's own"
        assert not [each for each in clusters.super.names(NAMESPACES) if each.startswith("t-super")]
        assert messages["files"].endswith("it names files; embed certificates, key and token")
        assert "exec" in messages["plugin"]
        assert 'vcnode_syncer_tenants{state="Unusable"} 8.0' in await clusters.syncer.metrics()
        assert (await clusters.syncer.ready_page())[0] == 200
        # One is mended: the condition ends, and the tenant is synced.
        clusters.planes["without"] = plane
        clusters.add_secret("without", "admin-kubeconfig", "admin-kubeconfig", text)
        await clusters.until_synced("without")
        await clusters.syncer.until(lambda: clusters.condition("without", UNUSABLE)[0] == "False")
        await clusters.until_follows("good", "later")


@pytest.mark.asyncio
async def test_a_tenant_of_another_authority_is_not_reachable(tmp_path: Path) -> None:
    async with virtual_clusters(tmp_path) as clusters:
        await clusters.add("good")
        plane = await clusters.add_plane("other")
        other = base64.b64encode(Authority.create("other").cert_pem).decode()
        text = with_authority(plane.kubeconfig(), other)
        clusters.add_cluster("other", {keys.ADMIN_KUBECONFIG: encoded(text)})
        await clusters.syncer.start()
        await clusters.until_synced("good")
        await clusters.syncer.until(lambda: clusters.condition("other", "NotReachable")[0] == "True")
        assert "certificate" in clusters.condition("other", "NotReachable")[1]
        assert (await clusters.syncer.ready_page())[0] == 200
        clusters.annotate("other", ADMIN_KUBECONFIG=encoded(plane.kubeconfig()))
        await clusters.until_synced("other")
        await clusters.syncer.until(lambda: clusters.condition("other", "NotReachable")[0] == "False")


@pytest.mark.asyncio
async def test_an_import_that_leads_to_loopback_is_not_dialled(tmp_path: Path) -> None:
    """By an address or by a name. The kubeconfig that somebody with rights here wrote may lead there."""
    async with virtual_clusters(tmp_path) as clusters:
        for name in ("own", "address", "name"):
            plane = await clusters.add_plane(name)
            text = plane.kubeconfig()
            clusters.add_cluster(name, spec=None if name == "own" else {"import": {}})
            by_name = text.replace("https://127.0.0.1:", "https://localhost:")
            assert by_name != text
            written = by_name if name == "name" else text
            clusters.add_secret(name, "admin-kubeconfig", "admin-kubeconfig", written)
        await clusters.syncer.start()
        await clusters.until_synced("own")
        for name, host in (("address", "127.0.0.1"), ("name", "localhost")):
            await clusters.syncer.until(partial(clusters.has_condition, name, "NotReachable"))
            message = clusters.condition(name, "NotReachable")[1]
            assert message.startswith(f"{host} leads to ")
            assert message.endswith(
                ", which is not dialled: each machine reaches itself by it; write an address of that control"
                " plane alone, or a name that leads to no other, as `server` in the tenant's kubeconfig"
            )
            assert not clusters.synced(name)
        assert (await clusters.syncer.ready_page())[0] == 200


@pytest.mark.asyncio
async def test_a_bracketed_dns_name_is_understood(tmp_path: Path) -> None:
    async with virtual_clusters(tmp_path) as clusters:
        plane = await clusters.add_plane("acme")
        text = changed(plane.kubeconfig(), server=f"https://[localhost]:{plane.server.port}")
        clusters.add_cluster("acme", {keys.ADMIN_KUBECONFIG: encoded(text)})
        await clusters.syncer.start()
        await clusters.until_synced("acme")


@pytest.mark.asyncio
async def test_phases_begin_and_end_a_tenant(tmp_path: Path) -> None:
    async with virtual_clusters(tmp_path) as clusters:
        plane = await clusters.add_plane("acme")
        clusters.add_cluster("acme", {keys.ADMIN_KUBECONFIG: encoded(plane.kubeconfig())}, phase="Pending")
        await clusters.syncer.start()
        assert (await clusters.syncer.status())["tenants"] == {}
        clusters.set_phase("acme", "Running")
        await clusters.until_synced("acme")
        clusters.set_phase("acme", "Error")
        await clusters.syncer.until_status(lambda found: found["tenants"] == {})
        assert "t-acme-web" in clusters.super.names(NAMESPACES)
        clusters.set_phase("acme", "Running")
        await clusters.until_follows("acme", "again")


@pytest.mark.asyncio
async def test_weight_and_policy_change_live(tmp_path: Path) -> None:
    async with virtual_clusters(tmp_path) as clusters:
        await clusters.add("acme")
        await clusters.syncer.start()
        await clusters.until_synced("acme")
        clusters.annotate("acme", SYNC_WEIGHT="7")
        await clusters.syncer.until_status(lambda found: weight_in(found) == [7])
        clusters.annotate("acme", SYNC_POLICY="missing")
        await clusters.syncer.until_status(lambda found: weight_in(found) == [7])
        plane = clusters.planes["acme"]
        plane.create(NAMESPACES, "", "later")
        page = await clusters.syncer.until_status(
            lambda found: any(
                each["object"] == "later"
                for tenant in found["tenants"].values()
                for each in tenant["notSynced"]
            )
        )
        [tenant] = page["tenants"].values()
        [found] = [each for each in tenant["notSynced"] if each["object"] == "later"]
        assert found["reason"] == "SyncPolicyUnusable: SyncPolicy missing does not exist"
        assert "t-acme-later" not in clusters.super.names(NAMESPACES)
        clusters.annotate("acme", SYNC_POLICY=None)
        await clusters.syncer.until(lambda: "t-acme-later" in clusters.super.names(NAMESPACES))


def weight_in(page: dict[str, dict[str, dict[str, object]]]) -> list[object]:
    return [each["weight"] for each in page["tenants"].values()]


async def two_tenants(clusters: VirtualClusters) -> None:
    for name, count in (("acme", 8), ("blue", 1)):
        await clusters.add(name, count)
    await clusters.syncer.start()
    await clusters.until_synced("acme", "blue")


@pytest.mark.asyncio
async def test_a_hanging_tenant_holds_up_nobody(tmp_path: Path) -> None:
    async with virtual_clusters(tmp_path) as clusters:
        await two_tenants(clusters)
        hanging = clusters.planes["acme"].server
        hanging.half_open()
        for number in range(5):
            await clusters.until_follows("blue", f"while-hanging-{number}")
        hanging.end_watches()
        await hanging.stop()
        await clusters.until_follows("blue", "while-away")
        assert (await clusters.syncer.ready_page())[0] == 200
        hanging.heal()
        await hanging.start()
        await clusters.until_follows("acme", "after")


@pytest.mark.asyncio
async def test_a_tenant_that_dies_in_a_list_loses_nothing(tmp_path: Path) -> None:
    async with virtual_clusters(tmp_path, patrol={"intervalSeconds": 1}) as clusters:
        await two_tenants(clusters)
        before = clusters.synced("acme")
        dying = clusters.planes["acme"].server
        dying.expire_watches()  # lists follow
        dying.faults.refusals.extend([(500, 0)] * 40)
        await clusters.until_follows("blue", "while-dying")
        await clusters.syncer.until(lambda: not dying.faults.refusals)
        await clusters.until_follows("acme", "after")
        assert before <= clusters.synced("acme")


@pytest.mark.asyncio
async def test_a_wiped_tenant_is_held_until_released(tmp_path: Path) -> None:
    async with virtual_clusters(tmp_path, patrol={"intervalSeconds": 1}) as clusters:
        await two_tenants(clusters)
        before = clusters.synced("acme")
        await clusters.syncer.stop()
        wipe(clusters, "acme")
        await clusters.syncer.start()
        await clusters.syncer.until(lambda: clusters.condition("acme", "DeletionsHeld")[0] == "True")
        await clusters.until_follows("blue", "later")
        assert clusters.synced("acme") == before
        assert clusters.condition("blue", "DeletionsHeld") == ("", "")
        message = clusters.condition("acme", "DeletionsHeld")[1]
        # A restart asks for the same token.
        await clusters.syncer.stop()
        await clusters.syncer.start()
        await clusters.syncer.until_status(
            lambda found: any(each["held"] for each in found["tenants"].values())
        )
        token = token_in(message)
        assert token_in(clusters.condition("acme", "DeletionsHeld")[1]) == token
        clusters.annotate("acme", RELEASE_HELD="0000")
        await clusters.until_follows("blue", "much-later")
        assert clusters.synced("acme") == before
        clusters.annotate("acme", RELEASE_HELD=token)
        await clusters.syncer.until(lambda: clusters.synced("acme") == set())
        await clusters.syncer.until(lambda: clusters.condition("acme", "DeletionsHeld")[0] == "False")


@pytest.mark.asyncio
async def test_a_hold_ends_when_the_objects_are_back(tmp_path: Path) -> None:
    async with virtual_clusters(tmp_path, patrol={"intervalSeconds": 1}) as clusters:
        await two_tenants(clusters)
        before = clusters.synced("acme")
        plane = clusters.planes["acme"]
        await clusters.syncer.stop()
        saved = wipe(clusters, "acme")
        await clusters.syncer.start()
        await clusters.syncer.until(lambda: clusters.condition("acme", "DeletionsHeld")[0] == "True")
        for resource, value in saved:
            plane.server.storage.restore(resource, value)
        await clusters.syncer.until(lambda: clusters.condition("acme", "DeletionsHeld")[0] == "False")
        assert clusters.synced("acme") == before


def wipe(clusters: VirtualClusters, name: str) -> list[tuple[Resource, Object]]:
    """Take the tenant's namespace `web` and all that is in it; returns them."""
    storage = clusters.planes[name].server.storage
    found = [
        (NAMESPACES, "", "web"),
        *((resource, "web", each) for resource, each in storage.contents("web")),
    ]
    return [(resource, storage.delete(resource, *where)) for resource, *where in found]


def token_in(message: str) -> str:
    return message.partition(f"{keys.RELEASE_HELD}=")[2].partition(" ")[0]
