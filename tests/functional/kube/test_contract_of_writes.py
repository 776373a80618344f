# SPDX-License-Identifier: Apache-2.0
"""The contract of writes with the fake and with a real kube-apiserver.

It is run as `test_contract` is. The real one needs a service account `default` in the namespace `default`.
"""

import contextlib
import json
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio

from daemonkit.kube.client import ApiError, Client
from daemonkit.kube.resources import CONFIG_MAPS, NAMESPACES, PODS, SERVICES, Resource

pytestmark = [pytest.mark.functional, pytest.mark.asyncio]

Object = dict[str, Any]

MERGE = "application/merge-patch+json"
JSON = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
ACCOUNTS = Resource("", "v1", "serviceaccounts")


class WriteScene:
    """Objects of one test in the namespace `default`; all have names of its own."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.mark = uuid.uuid4().hex[:8]
        self.made: list[tuple[Resource, str]] = []

    def name(self, suffix: str) -> str:
        return f"w{self.mark}-{suffix}"

    async def ask(
        self, method: str, path: str, value: Any = None, content_type: str = "application/json", **query: str
    ) -> Object:
        body = None if value is None else json.dumps(value).encode()
        answer = await self._client.request(method, path, query, body, content_type=content_type)
        found: Object = json.loads(answer)
        return found

    async def refused(
        self, method: str, path: str, value: Any, content_type: str = "application/json"
    ) -> str:
        """The code and the reason of a refusal."""
        with pytest.raises(ApiError) as caught:
            await self.ask(method, path, value, content_type)
        return f"{caught.value.status.code} {caught.value.status.reason}"

    async def create(self, resource: Resource, suffix: str, **fields: Any) -> Object:
        metadata = {"name": self.name(suffix), **fields.pop("metadata", {})}
        self.made.append((resource, metadata["name"]))
        path = resource.path("default" if resource.is_namespaced else None)
        return await self.ask("POST", path, {"metadata": metadata, **fields})

    async def pod(self, suffix: str, **spec: Any) -> Object:
        containers = [{"name": "app", "image": "a"}]
        fixed = {"containers": containers, "schedulerName": "nobody", "automountServiceAccountToken": False}
        return await self.create(PODS, suffix, spec=fixed | spec)

    def path(self, resource: Resource, suffix: str, subresource: str = "") -> str:
        namespace = "default" if resource.is_namespaced else None
        return resource.path(namespace, self.name(suffix)) + (f"/{subresource}" if subresource else "")

    async def bind(self, suffix: str, **metadata: Any) -> Object:
        target = {"apiVersion": "v1", "kind": "Node", "name": "no-such-node"}
        value = {"metadata": {"name": self.name(suffix), **metadata}, "target": target}
        return await self.ask("POST", self.path(PODS, suffix, "binding"), value)


@pytest_asyncio.fixture
async def scene(any_client: Client) -> AsyncIterator[WriteScene]:
    scene = WriteScene(any_client)
    yield scene
    for resource, name in reversed(scene.made):
        path = resource.path("default" if resource.is_namespaced else None, name)
        with gone():
            await scene.ask("PATCH", path, {"metadata": {"finalizers": None}}, MERGE)
            await scene.ask("DELETE", path, {"gracePeriodSeconds": 0})


@contextlib.contextmanager
def gone() -> Iterator[None]:
    """What is done is not done to an object that is no more."""
    try:
        yield
    except ApiError as error:
        if error.status.code != 404:
            raise


async def test_patches_of_three_kinds_are_applied(scene: WriteScene) -> None:
    made = await scene.create(CONFIG_MAPS, "a", data={"a": "1", "b": "2"})
    path = scene.path(CONFIG_MAPS, "a")
    assert "generation" not in made["metadata"]
    merged = await scene.ask("PATCH", path, {"data": {"a": None, "c": "3"}}, MERGE)
    assert merged["data"] == {"b": "2", "c": "3"}
    operations = [{"op": "test", "path": "/data/b", "value": "2"}, {"op": "remove", "path": "/data/b"}]
    assert (await scene.ask("PATCH", path, operations, JSON))["data"] == {"c": "3"}
    assert await scene.refused("PATCH", path, operations, JSON) == "422 Invalid"
    strategic = {"metadata": {"finalizers": ["vcnode.io/x"]}}
    await scene.ask("PATCH", path, strategic, STRATEGIC)
    both = await scene.ask("PATCH", path, {"metadata": {"finalizers": ["vcnode.io/y"]}}, STRATEGIC)
    assert sorted(both["metadata"]["finalizers"]) == ["vcnode.io/x", "vcnode.io/y"]
    assert await scene.refused("PATCH", path, {}, "application/x") == "415 UnsupportedMediaType"
    assert await scene.refused("PATCH", path, {"metadata": {"name": "z"}}, MERGE) == "400 BadRequest"
    assert await scene.refused("PATCH", scene.path(CONFIG_MAPS, "no"), {}, MERGE) == "404 NotFound"


async def test_a_write_that_changes_nothing_is_none(scene: WriteScene) -> None:
    made = await scene.create(CONFIG_MAPS, "a", data={"a": "1"})
    path = scene.path(CONFIG_MAPS, "a")
    patched = await scene.ask("PATCH", path, {"data": {"a": "1"}}, MERGE)
    put = await scene.ask("PUT", path, {"metadata": {"name": scene.name("a")}, "data": {"a": "1"}})
    version = made["metadata"]["resourceVersion"]
    assert patched["metadata"]["resourceVersion"] == put["metadata"]["resourceVersion"] == version


async def test_preconditions_refuse_another_object(scene: WriteScene) -> None:
    await scene.create(CONFIG_MAPS, "a")
    path, name = scene.path(CONFIG_MAPS, "a"), scene.name("a")
    for metadata, expected in ({"uid": "x"}, "422 Invalid"), ({"resourceVersion": "1"}, "409 Conflict"):
        assert await scene.refused("PATCH", path, {"metadata": metadata}, MERGE) == expected
        value = {"metadata": {"name": name, **metadata}}
        assert await scene.refused("PUT", path, value) == "409 Conflict"
        assert await scene.refused("DELETE", path, {"preconditions": metadata}) == "409 Conflict"
    made = {"metadata": {"name": name}}
    assert await scene.refused("POST", CONFIG_MAPS.path("default"), made) == "409 AlreadyExists"
    assert await scene.refused("POST", CONFIG_MAPS.path("no-such"), made) == "404 NotFound"


async def test_an_object_with_finalizers_stays(scene: WriteScene) -> None:
    await scene.create(CONFIG_MAPS, "a", metadata={"finalizers": ["vcnode.io/x"]})
    path = scene.path(CONFIG_MAPS, "a")
    deleted = await scene.ask("DELETE", path)
    assert deleted["metadata"]["deletionTimestamp"]
    assert deleted["metadata"]["deletionGracePeriodSeconds"] == 0
    again = await scene.ask("DELETE", path)
    assert again["metadata"]["resourceVersion"] == deleted["metadata"]["resourceVersion"]
    more = {"metadata": {"finalizers": ["vcnode.io/x", "vcnode.io/y"]}}
    assert await scene.refused("PATCH", path, more, MERGE) == "422 Invalid"
    assert (await scene.ask("PATCH", path, {"data": {"a": "1"}}, MERGE))["data"] == {"a": "1"}
    await scene.ask("PATCH", path, {"metadata": {"finalizers": None}}, MERGE)
    assert await scene.refused("GET", path, None) == "404 NotFound"


async def test_names_are_generated(scene: WriteScene) -> None:
    value = {"metadata": {"generateName": scene.name("g-")}}
    made = await scene.ask("POST", CONFIG_MAPS.path("default"), value)
    scene.made.append((CONFIG_MAPS, made["metadata"]["name"]))
    assert made["metadata"]["name"].startswith(scene.name("g-"))
    assert len(made["metadata"]["name"]) == len(scene.name("g-")) + 5
    assert made["metadata"]["creationTimestamp"]


async def test_a_collection_is_deleted_by_its_labels(scene: WriteScene) -> None:
    labels = {"labels": {"vcnode.io/test": scene.mark}}
    await scene.create(CONFIG_MAPS, "a", metadata=labels)
    await scene.create(CONFIG_MAPS, "b", metadata=labels)
    await scene.create(CONFIG_MAPS, "c")
    path = CONFIG_MAPS.path("default")
    answer = await scene.ask("DELETE", path, labelSelector=f"vcnode.io/test={scene.mark}")
    assert [each["metadata"]["name"] for each in answer["items"]] == [scene.name("a"), scene.name("b")]
    assert await scene.refused("GET", scene.path(CONFIG_MAPS, "a"), None) == "404 NotFound"
    assert await scene.ask("GET", scene.path(CONFIG_MAPS, "c"))


async def test_a_status_is_written_apart(scene: WriteScene) -> None:
    made = await scene.create(
        PODS,
        "a",
        spec={"containers": [{"name": "app", "image": "a"}], "schedulerName": "nobody"},
        status={"phase": "Running"},
    )
    assert (made["status"]["phase"], made["metadata"]["generation"]) == ("Pending", 1)
    status, main = scene.path(PODS, "a", "status"), scene.path(PODS, "a")
    change = {
        "metadata": {"labels": {"x": "y"}},
        "spec": {"nodeName": "n"},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }
    patched = await scene.ask("PATCH", status, change, STRATEGIC)
    assert patched["status"]["phase"] == "Running"
    assert "nodeName" not in patched["spec"]
    assert patched["metadata"]["labels"] == {"x": "y"}
    more = {"status": {"conditions": [{"type": "Initialized", "status": "True"}]}}
    patched = await scene.ask("PATCH", status, more, STRATEGIC)
    assert {each["type"] for each in patched["status"]["conditions"]} == {"Ready", "Initialized"}
    ignored = await scene.ask("PATCH", main, {"status": {"phase": "Failed"}}, MERGE)
    assert ignored["status"]["phase"] == "Running"
    assert ignored["metadata"]["generation"] == 1
    stale = {"metadata": {"name": scene.name("a"), "resourceVersion": "1"}, "status": {}}
    assert await scene.refused("PATCH", status, stale, MERGE) == "409 Conflict"


async def test_few_fields_of_a_pod_may_change(scene: WriteScene) -> None:
    await scene.pod("a")
    path = scene.path(PODS, "a")
    image = {"spec": {"containers": [{"name": "app", "image": "b"}]}}
    changed = await scene.ask("PATCH", path, image, STRATEGIC)
    assert changed["metadata"]["generation"] == 2
    assert changed["spec"]["containers"][0]["image"] == "b"
    for spec in (
        {"nodeName": "n"},
        {"schedulingGates": [{"name": "vcnode.io/x"}]},
        {"ephemeralContainers": [{"name": "e", "image": "i"}]},
        {"restartPolicy": "Never"},
    ):
        assert await scene.refused("PATCH", path, {"spec": spec}, MERGE) == "422 Invalid", spec
    more = {"spec": {"tolerations": [*changed["spec"]["tolerations"], {"key": "k", "operator": "Exists"}]}}
    assert len((await scene.ask("PATCH", path, more, MERGE))["spec"]["tolerations"]) == 3


async def test_ephemeral_containers_are_added_only(scene: WriteScene) -> None:
    await scene.pod("a")
    path = scene.path(PODS, "a", "ephemeralcontainers")
    added = {"spec": {"ephemeralContainers": [{"name": "e", "image": "i"}]}}
    found = await scene.ask("PATCH", path, added, STRATEGIC)
    assert [each["name"] for each in found["spec"]["ephemeralContainers"]] == ["e"]
    changed = {"spec": {"ephemeralContainers": [{"name": "e", "image": "j"}]}}
    assert await scene.refused("PATCH", path, changed, STRATEGIC) == "422 Invalid"


async def test_resources_are_changed_by_a_resize(scene: WriteScene) -> None:
    resources = {"requests": {"cpu": "1"}}
    await scene.pod("a", containers=[{"name": "app", "image": "a", "resources": resources}])
    change = {"spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "2"}}}]}}
    assert await scene.refused("PATCH", scene.path(PODS, "a"), change, STRATEGIC) == "422 Invalid"
    found = await scene.ask("PATCH", scene.path(PODS, "a", "resize"), change, STRATEGIC)
    assert found["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "2"}}


async def test_a_pod_is_bound_once(scene: WriteScene) -> None:
    made = await scene.pod("a", schedulingGates=[{"name": "vcnode.io/x"}])
    condition = made["status"]["conditions"][0]
    assert (condition["status"], condition["reason"]) == ("False", "SchedulingGated")
    with pytest.raises(ApiError, match="409 Conflict"):
        await scene.bind("a")
    await scene.ask("PATCH", scene.path(PODS, "a"), {"spec": {"schedulingGates": None}}, MERGE)
    with pytest.raises(ApiError, match="409 Conflict"):
        await scene.bind("a", uid="x")
    answer = await scene.bind("a", annotations={"vcnode.io/b": "1"})
    assert (answer["kind"], answer["status"]) == ("Status", "Success")
    pod = await scene.ask("GET", scene.path(PODS, "a"))
    assert pod["spec"]["nodeName"] == "no-such-node"
    assert pod["metadata"]["annotations"] == {"vcnode.io/b": "1"}
    assert [(each["type"], each["status"]) for each in pod["status"]["conditions"]] == [
        ("PodScheduled", "True")
    ]
    with pytest.raises(ApiError, match="409 Conflict"):
        await scene.bind("a")


async def test_a_bound_pod_is_deleted_with_grace(scene: WriteScene) -> None:
    path = scene.path(PODS, "a")
    await scene.pod("a")
    await scene.bind("a")
    first = (await scene.ask("DELETE", path))["metadata"]
    assert (first["deletionGracePeriodSeconds"], first["generation"]) == (30, 2)
    shorter = (await scene.ask("DELETE", path, {"gracePeriodSeconds": 10}))["metadata"]
    longer = (await scene.ask("DELETE", path, {"gracePeriodSeconds": 20}))["metadata"]
    assert shorter["deletionGracePeriodSeconds"] == longer["deletionGracePeriodSeconds"] == 10
    assert first["deletionTimestamp"] > shorter["deletionTimestamp"] == longer["deletionTimestamp"]
    await scene.ask("DELETE", path, {"gracePeriodSeconds": 0})
    assert await scene.refused("GET", path, None) == "404 NotFound"


async def test_an_unbound_pod_goes_at_once(scene: WriteScene) -> None:
    path = scene.path(PODS, "a")
    await scene.pod("a")
    await scene.ask("DELETE", path)
    assert await scene.refused("GET", path, None) == "404 NotFound"
    await scene.pod("b")
    eviction = {"metadata": {"name": scene.name("b")}}
    answer = await scene.ask("POST", scene.path(PODS, "b", "eviction"), eviction)
    assert answer["status"] == "Success"
    assert await scene.refused("POST", scene.path(PODS, "b", "eviction"), eviction) == "404 NotFound"


async def test_tokens_are_bound_to_what_exists(scene: WriteScene) -> None:
    await scene.create(ACCOUNTS, "a")
    pod = await scene.pod("a", serviceAccountName=scene.name("a"))
    path = scene.path(ACCOUNTS, "a", "token")
    reference = {"kind": "Pod", "apiVersion": "v1", "name": scene.name("a"), "uid": pod["metadata"]["uid"]}
    request = {"spec": {"audiences": ["x"], "expirationSeconds": 600, "boundObjectRef": reference}}
    answer = await scene.ask("POST", path, request)
    assert answer["spec"] == request["spec"]
    assert answer["status"]["token"].count(".") == 2
    assert answer["status"]["expirationTimestamp"].endswith("Z")
    for change, expected in (({"uid": "x"}, "409 Conflict"), ({"name": "no"}, "404 NotFound")):
        wrong = {"spec": {"boundObjectRef": reference | change}}
        assert await scene.refused("POST", path, wrong) == expected
    assert await scene.refused("POST", path, {"spec": {"expirationSeconds": 5}}) == "422 Invalid"
    assert await scene.refused("POST", scene.path(ACCOUNTS, "no", "token"), request) == "404 NotFound"


async def test_services_have_addresses(scene: WriteScene) -> None:
    ports = [{"port": 80}]
    made = await scene.create(SERVICES, "a", spec={"ports": ports}, status={"loadBalancer": {"ingress": []}})
    ip = made["spec"]["clusterIP"]
    assert made["spec"]["clusterIPs"] == [ip]
    assert made["spec"]["ports"] == [{"port": 80, "protocol": "TCP", "targetPort": 80}]
    assert made["status"] == {"loadBalancer": {}}
    assert "generation" not in made["metadata"]
    path = scene.path(SERVICES, "a")
    value = {"metadata": {"name": scene.name("a")}, "spec": {"ports": [{"port": 81}]}}
    assert (await scene.ask("PUT", path, value))["spec"]["clusterIP"] == ip
    value["spec"] = {"ports": ports, "clusterIP": "None"}
    assert await scene.refused("PUT", path, value) == "422 Invalid"
    taken = {"metadata": {"name": scene.name("b")}, "spec": {"ports": ports, "clusterIP": ip}}
    assert await scene.refused("POST", SERVICES.path("default"), taken) == "422 Invalid"
    headless = await scene.create(SERVICES, "c", spec={"ports": ports, "clusterIP": "None"})
    assert headless["spec"]["clusterIPs"] == ["None"]
    with_port = await scene.create(SERVICES, "d", spec={"ports": ports, "type": "NodePort"})
    assert with_port["spec"]["ports"][0]["nodePort"] >= 30_000
    same = {"ports": with_port["spec"]["ports"], "type": "NodePort"}
    taken = {"metadata": {"name": scene.name("e")}, "spec": same}
    assert await scene.refused("POST", SERVICES.path("default"), taken) == "422 Invalid"


async def test_a_namespace_that_ends_takes_nothing(scene: WriteScene) -> None:
    made = await scene.create(NAMESPACES, "a")
    name = scene.name("a")
    assert made["status"] == {"phase": "Active"}
    assert made["metadata"]["labels"] == {"kubernetes.io/metadata.name": name}
    kept = {"metadata": {"name": "kept", "finalizers": ["vcnode.io/x"]}}
    await scene.ask("POST", CONFIG_MAPS.path(name), kept)
    deleted = await scene.ask("DELETE", scene.path(NAMESPACES, "a"))
    assert deleted["metadata"]["deletionTimestamp"]
    assert deleted["status"]["phase"] == "Terminating"
    value = {"metadata": {"name": "late"}}
    assert await scene.refused("POST", CONFIG_MAPS.path(name), value) == "403 Forbidden"
    await scene.ask("PATCH", CONFIG_MAPS.path(name, "kept"), {"metadata": {"finalizers": None}}, MERGE)


async def test_what_is_too_large_is_refused(scene: WriteScene) -> None:
    path = CONFIG_MAPS.path("default")

    def config_map(suffix: str, data: dict[str, str], **metadata: Any) -> Object:
        return {"metadata": {"name": scene.name(suffix), **metadata}, "data": data}

    most = 256 * 1024
    notes = {"a": "x" * (most - 1)}
    await scene.create(CONFIG_MAPS, "a", metadata={"name": scene.name("a"), "annotations": notes})
    more = config_map("b", {}, annotations={"a": "x" * most})
    assert await scene.refused("POST", path, more) == "422 Invalid"
    await scene.create(CONFIG_MAPS, "c", data={"a": "x" * (1024 * 1024)})
    more = config_map("d", {"a": "x" * (1024 * 1024 + 1)})
    assert await scene.refused("POST", path, more) == "422 Invalid"
    long_keys = {f"{number:0250}": "x" * 250 for number in range(4_000)}
    assert await scene.refused("POST", path, config_map("e", long_keys)) == "500 "
    control_characters = {"a": "\x01" * (1024 * 1024)}
    assert await scene.refused("POST", path, config_map("f", control_characters)) == (
        "413 RequestEntityTooLarge"
    )
