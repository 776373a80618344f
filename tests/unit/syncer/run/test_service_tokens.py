# SPDX-License-Identifier: Apache-2.0
"""Tokens of pods in a whole syncer: when they are asked for, what loses them, and who reads of a failure."""

import asyncio
import base64
import json
from collections.abc import Mapping

import pytest

from daemonkit.kube.resources import NAMESPACES, NODES, PODS, SECRETS
from devkit.kube.storage import Object
from devkit.kube.token_requests import claims_of
from tenancy import keys
from tests.unit.syncer import objects
from tests.unit.syncer.planes import Plane, annotations_of, refused
from tests.unit.syncer.worlds import EVENTS, World, furnish, synced_tenant

pytestmark = pytest.mark.asyncio

_OF_NAMESPACES = ("/api/v1/namespaces/web/", "/api/v1/namespaces/red-web/")
SYNCED = "vcnode.io/Synced"


def _claims(world: World) -> Mapping[str, Object]:
    """What the tokens in the super cluster say, by the pod's name."""
    found = {}
    for (namespace, _), secret in world.super.objects(SECRETS).items():
        if namespace == "red-web":
            claims = claims_of(base64.b64decode(secret["data"]["token-0"]).decode())["kubernetes.io"]
            found[claims["pod"]["name"]] = claims
    return found


def _events(plane: Plane, reason: str) -> list[str]:
    return [each["message"] for each in plane.objects(EVENTS).values() if each["reason"] == reason]


def _conditions(plane: Plane) -> Mapping[str, str]:
    status = plane.storage.get(PODS, "web", "p").get("status") or {}
    return {each["type"]: each["status"] for each in status.get("conditions") or ()}


async def test_a_token_names_the_node_and_costs_two_requests() -> None:
    """The tenant's API server knows the node once the pod is bound. Then the Secret is the next write."""
    async with synced_tenant() as (world, plane):
        paths: list[str] = []
        world.on_write = paths.append
        plane.cluster.create(PODS, objects.pod_with_token("p", 600))
        await asyncio.sleep(20)
        found = [each for each in paths if each.startswith(_OF_NAMESPACES)]
        assert found == [
            "/api/v1/namespaces/red-web/pods",
            "/api/v1/namespaces/web/pods/p/binding",
            "/api/v1/namespaces/web/serviceaccounts/default/token",
            "/api/v1/namespaces/red-web/secrets",
            "/api/v1/namespaces/web/pods/p/status",
        ]
        (claims,) = _claims(world).values()
        assert claims["node"]["name"] == plane.storage.get(PODS, "web", "p")["spec"]["nodeName"]


async def test_late_token_is_not_for_the_next_tenant() -> None:
    """A VirtualCluster is deleted while its API server keeps a token back. Then another one has its key."""
    async with synced_tenant() as (world, plane):

        def keep_back(path: str) -> None:
            if path.endswith("/binding"):
                plane.answers.clear()

        world.on_write = keep_back
        plane.cluster.create(PODS, objects.pod_with_token("p", 600))
        await asyncio.sleep(20)
        furnish(world.make_tenant("one"))
        await asyncio.sleep(100)
        namespace = world.super.storage.get(NAMESPACES, "", "red-web")
        assert annotations_of(namespace)[keys.VC_UID] == world.uids["one"]
        paths: list[str] = []
        world.on_write = paths.append
        plane.answers.set()
        await asyncio.sleep(20)
        assert [each for each in paths if each.startswith(_OF_NAMESPACES)] == [
            "/api/v1/namespaces/web/serviceaccounts/default/token"
        ]


async def test_next_tenant_learns_nothing_of_earlier_pods() -> None:
    """Of one that had its key: no request for a token names its pod, and no vNode shows where it runs."""
    async with synced_tenant() as (world, plane):
        plane.cluster.create(PODS, objects.pod_with_token("p", 600))
        await asyncio.sleep(20)
        other = world.make_tenant("one")
        paths: list[str] = []
        world.on_write = paths.append
        await asyncio.sleep(100)
        assert not [each for each in paths if each.endswith("/token") or "/nodes" in each]
        assert other.objects(NODES) == {}


async def test_secrets_of_an_earlier_tenant_are_not_taken_over() -> None:
    """They stay in its super namespace. Issued in the future by our clock, they would be renewed at once."""
    async with synced_tenant() as (world, plane):
        plane.cluster.create(PODS, objects.pod_with_token("p", 600))
        await asyncio.sleep(20)
        await world.kill_syncer()
        ((where, secret),) = [
            each for each in world.super.objects(SECRETS).items() if each[0][0] == "red-web"
        ]
        noted = secret["metadata"]["annotations"]
        lifetimes = json.loads(noted[keys.POD_TOKEN_LIFETIMES])
        lifetimes["tokens"][0]["issued"] += 1000
        noted[keys.POD_TOKEN_LIFETIMES] = json.dumps(lifetimes)
        world.super.storage.put(SECRETS, secret)
        world.make_tenant("one")
        paths: list[str] = []
        world.on_write = paths.append
        world.start_syncer()
        await asyncio.sleep(100)
        assert where in world.super.objects(SECRETS)
        assert not [each for each in paths if each.endswith("/token")]


@pytest.mark.parametrize("path", ["/serviceaccounts/default/token", "/red-web/secrets"])
async def test_a_kill_after_the_binding_loses_no_token(path: str) -> None:
    async with synced_tenant() as (world, plane):
        died = asyncio.Event()

        def kill(written: str) -> None:
            if written.endswith(path):
                died.set()
                raise asyncio.CancelledError

        world.on_write = kill
        plane.cluster.create(PODS, objects.pod_with_token("p", 600))
        await died.wait()
        await world.kill_syncer()
        assert plane.storage.get(PODS, "web", "p")["spec"]["nodeName"]
        assert _claims(world) == {}
        world.on_write = lambda _: None
        world.start_syncer()
        await asyncio.sleep(20)
        assert set(_claims(world)) == {"p"}


async def test_a_secret_deleted_while_nobody_looks_is_made_again() -> None:
    async with synced_tenant() as (world, plane):
        plane.cluster.create(PODS, objects.pod_with_token("p", 600))
        await asyncio.sleep(20)
        await world.kill_syncer()
        ((_, name),) = [where for where in world.super.objects(SECRETS) if where[0] == "red-web"]
        world.super.cluster.delete(SECRETS, "red-web", name)
        world.start_syncer()
        await asyncio.sleep(20)
        assert set(_claims(world)) == {"p"}
        assert annotations_of(world.super.storage.get(SECRETS, "red-web", name))


async def test_a_pod_without_tokens_says_so_until_it_has_them() -> None:
    """It is bound and has a status meanwhile; the Event comes once, however often it is tried."""
    async with synced_tenant() as (world, plane):

        def refuse(path: str) -> None:
            if path.endswith("/token"):
                raise refused(403)

        world.on_write = refuse
        plane.cluster.create(PODS, objects.pod_with_token("p", 600))
        await asyncio.sleep(60)
        message = (
            "no token for service account web/default: the tenant's API server forbids TokenRequests (403)"
        )
        assert _events(plane, "SyncWaiting") == [message]
        assert plane.storage.get(PODS, "web", "p")["status"]["phase"] == "Running"
        assert _conditions(plane)[SYNCED] == "False"
        world.on_write = lambda _: None
        await asyncio.sleep(200)
        assert set(_claims(world)) == {"p"}
        assert _conditions(plane)[SYNCED] == "True"


async def test_a_failing_renewal_is_an_event_of_its_pod() -> None:
    """One Event, however often it is tried. Another comes once it fails for another reason."""
    async with synced_tenant() as (world, plane):
        plane.cluster.create(PODS, objects.pod_with_token("p", 600))
        await asyncio.sleep(300)
        code = 403

        def refuse(path: str) -> None:
            if path.endswith("/token"):
                raise refused(code)

        world.on_write = refuse
        await asyncio.sleep(500)
        prefix = "no token for service account web/default: the tenant's API server "
        assert _events(plane, "FailedTokenRenewal") == [f"{prefix}forbids TokenRequests (403)"]
        assert _conditions(plane).get(SYNCED) is None
        code = 500
        await asyncio.sleep(200)
        assert sorted(_events(plane, "FailedTokenRenewal")) == [
            f"{prefix}answers 500",
            f"{prefix}forbids TokenRequests (403)",
        ]
        world.on_write = lambda _: None
        await asyncio.sleep(100)
        assert _claims(world)["p"]["pod"]["name"] == "p"
