# SPDX-License-Identifier: Apache-2.0
"""The contract of server-side apply with the fake and with a real kube-apiserver. It is run as
`test_contract` is."""

import contextlib
import json
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from daemonkit.kube.client import ApiError, Client
from daemonkit.kube.resources import CONFIG_MAPS, SERVICES, Resource

pytestmark = [pytest.mark.functional, pytest.mark.asyncio]

Object = dict[str, Any]

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
DEPLOYMENTS = Resource("apps", "v1", "deployments")
_KINDS = {
    CONFIG_MAPS: ("v1", "ConfigMap"),
    SERVICES: ("v1", "Service"),
    DEPLOYMENTS: ("apps/v1", "Deployment"),
}


class ApplyScene:
    """One object of each kind in the namespace `default`, with a name of the test's own."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.name = f"a{uuid.uuid4().hex[:8]}"

    async def ask(
        self, method: str, path: str, value: Any, content_type: str = "application/json", **query: str
    ) -> Object:
        body = json.dumps(value).encode()
        answer = await self._client.request(method, path, query, body, content_type=content_type)
        found: Object = json.loads(answer)
        return found

    async def apply(
        self,
        resource: Resource,
        manager: str = "one",
        *,
        force: str = "",
        metadata: Any = None,
        **fields: Any,
    ) -> Object:
        version, kind = _KINDS[resource]
        value = {
            "apiVersion": version,
            "kind": kind,
            "metadata": {"name": self.name, **(metadata or {})},
            **fields,
        }
        query = {"fieldManager": manager} | ({"force": force} if force else {})
        return await self.ask("PATCH", self.path(resource), value, APPLY, **query)

    async def refused(self, resource: Resource, manager: str, **fields: Any) -> str:
        """The code, the reason and the message of a refusal."""
        with pytest.raises(ApiError) as caught:
            await self.apply(resource, manager, **fields)
        status = caught.value.status
        return f"{status.code} {status.reason}: {status.message}"

    def path(self, resource: Resource, subresource: str = "") -> str:
        path = resource.path("default", self.name)
        return f"{path}/{subresource}" if subresource else path


@pytest_asyncio.fixture
async def scene(any_client: Client) -> AsyncIterator[ApplyScene]:
    scene = ApplyScene(any_client)
    yield scene
    for resource in _KINDS:
        with contextlib.suppress(ApiError):
            await scene.ask("DELETE", scene.path(resource), {"gracePeriodSeconds": 0})


def managers(value: Object) -> dict[str, str]:
    return {each["manager"]: each["operation"] for each in value["metadata"]["managedFields"]}


def template(*containers: Object) -> Object:
    labels = {"app": "a"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": list(containers)}}
    return {"replicas": 1, "selector": {"matchLabels": labels}, "template": pod}


async def test_an_apply_makes_an_object_and_then_nothing(scene: ApplyScene) -> None:
    made = await scene.apply(CONFIG_MAPS, data={"a": "1"}, metadata={"labels": {"x": "y"}})
    assert (made["data"], made["metadata"]["labels"], managers(made)) == (
        {"a": "1"},
        {"x": "y"},
        {"one": "Apply"},
    )
    again = await scene.apply(CONFIG_MAPS, data={"a": "1"}, metadata={"labels": {"x": "y"}})
    assert again["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_what_is_left_out_is_removed(scene: ApplyScene) -> None:
    await scene.apply(CONFIG_MAPS, data={"a": "1", "b": "2"}, metadata={"labels": {"x": "y"}})
    await scene.ask("PATCH", scene.path(CONFIG_MAPS), {"data": {"c": "3"}}, MERGE, fieldManager="two")
    left = await scene.apply(CONFIG_MAPS, data={"a": "1"})
    assert (left["data"], left["metadata"].get("labels")) == ({"a": "1", "c": "3"}, None)
    assert managers(left) == {"one": "Apply", "two": "Update"}


async def test_what_another_owns_too_stays(scene: ApplyScene) -> None:
    await scene.apply(CONFIG_MAPS, "one", data={"a": "1", "b": "2"})
    await scene.apply(CONFIG_MAPS, "two", data={"a": "1"})
    left = await scene.apply(CONFIG_MAPS, "one", data={"b": "2"})
    assert left["data"] == {"a": "1", "b": "2"}
    assert (await scene.apply(CONFIG_MAPS, "two"))["data"] == {"b": "2"}


async def test_a_conflict_is_refused_or_forced(scene: ApplyScene) -> None:
    await scene.apply(CONFIG_MAPS, "one", data={"a": "1", "b": "2"})
    message = await scene.refused(CONFIG_MAPS, "two", data={"a": "9"})
    assert message == '409 Conflict: Apply failed with 1 conflict: conflict with "one": .data.a'
    forced = await scene.apply(CONFIG_MAPS, "two", force="true", data={"a": "9"})
    assert forced["data"] == {"a": "9", "b": "2"}
    # The field is no more the first one's: what it leaves out stays.
    assert (await scene.apply(CONFIG_MAPS, "one", data={"b": "2"}))["data"] == {"a": "9", "b": "2"}


async def test_items_of_lists_have_owners(scene: ApplyScene) -> None:
    first, second = ({"name": name, "image": f"{name}:1"} for name in ("x", "y"))
    await scene.apply(DEPLOYMENTS, "one", spec=template(first))
    both = await scene.apply(DEPLOYMENTS, "two", spec={"template": {"spec": {"containers": [second]}}})
    assert [each["name"] for each in both["spec"]["template"]["spec"]["containers"]] == ["x", "y"]
    assert both["metadata"]["generation"] == 2
    changed = await scene.apply(DEPLOYMENTS, "one", spec=template({**first, "image": "x:2"}))
    images = [each["image"] for each in changed["spec"]["template"]["spec"]["containers"]]
    assert images == ["x:2", "y:1"]
    left = await scene.apply(DEPLOYMENTS, "two", spec={"paused": True})
    assert [each["name"] for each in left["spec"]["template"]["spec"]["containers"]] == ["x"]


async def test_what_the_server_sets_is_no_conflict(scene: ApplyScene) -> None:
    ports = [{"name": "https", "port": 6443, "targetPort": "https"}]
    made = await scene.apply(SERVICES, spec={"selector": {"app": "a"}, "ports": ports})
    assert made["spec"]["ports"] == [{**ports[0], "protocol": "TCP"}]
    again = await scene.apply(SERVICES, spec={"selector": {"app": "a"}, "ports": ports})
    assert again["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    assert again["spec"]["clusterIP"] == made["spec"]["clusterIP"]


async def test_a_status_is_not_applied_with_its_object(scene: ApplyScene) -> None:
    container = {"name": "x", "image": "x:1"}
    status = {"observedGeneration": 1}
    made = await scene.apply(DEPLOYMENTS, spec=template(container), status=status)
    assert "observedGeneration" not in made.get("status", {})
    patch = {"status": {"observedGeneration": 1, "replicas": 1}}
    await scene.ask("PATCH", scene.path(DEPLOYMENTS, "status"), patch, MERGE, fieldManager="two")
    again = await scene.apply(DEPLOYMENTS, spec=template(container))
    assert again["status"]["observedGeneration"] == 1


async def test_an_apply_may_be_of_one_object_alone(scene: ApplyScene) -> None:
    assert (await scene.refused(CONFIG_MAPS, "one", metadata={"uid": "x"})).startswith("409 Conflict")
    made = await scene.apply(CONFIG_MAPS, data={"a": "1"})
    version = made["metadata"]["resourceVersion"]
    same = {"uid": made["metadata"]["uid"], "resourceVersion": version}
    newer = await scene.apply(CONFIG_MAPS, data={"a": "2"}, metadata=same)
    assert newer["data"] == {"a": "2"}
    for metadata, code in ({"uid": "x"}, "422 Invalid"), ({"resourceVersion": version}, "409 Conflict"):
        message = await scene.refused(CONFIG_MAPS, "one", data={"a": "3"}, metadata=metadata)
        assert message.startswith(code)


async def test_an_apply_needs_a_manager(scene: ApplyScene) -> None:
    assert (await scene.refused(CONFIG_MAPS, "")).startswith("422 Invalid")
    entry = {"manager": "x"}
    message = await scene.refused(CONFIG_MAPS, "one", metadata={"managedFields": [entry]})
    assert message.startswith("400 BadRequest")
