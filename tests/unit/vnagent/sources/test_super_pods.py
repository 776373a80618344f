# SPDX-License-Identifier: Apache-2.0
import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from daemonkit.kube.resources import PODS
from devkit.kube.storage import Object, Storage
from devkit.kube.transport import StorageTransport
from tenancy import keys
from tenancy.ownership import ContainerPolicy, Owned
from vnagent.sources.super_pods import SuperPods

pytestmark = pytest.mark.asyncio

CONTAINERS = frozenset({"app", "init"})
UID = "11111111-2222-3333-4444-555555555555"


class SuperPodsSetting:
    def __init__(self) -> None:
        self.storage = Storage()
        self.transport = StorageTransport(self.storage)
        self.published: list[tuple[tuple[Owned, ...], tuple[str, ...]]] = []
        self.source = SuperPods(
            self.transport,
            "n1",
            ContainerPolicy(injected=frozenset({"sidecar"})),
            lambda pods, problems: self.published.append((pods, problems)),
            clock=asyncio.get_running_loop().time,
        )

    def put(self, name: str, *, node: str = "n1", annotations: dict[str, str] | None = None) -> Object:
        spec = {
            "nodeName": node,
            "containers": [{"name": "app", "image": "shop:1"}, {"name": "sidecar"}],
            "initContainers": [{"name": "init"}],
            "ephemeralContainers": None,
        }
        tenant_keys = {keys.CLUSTER: "a", keys.NAMESPACE: "web", keys.UID: UID}
        metadata = {
            "name": name,
            "namespace": "a-web",
            "annotations": tenant_keys if annotations is None else annotations,
        }
        return self.storage.put(PODS, {"metadata": metadata, "spec": spec})

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.source.run())
            await asyncio.sleep(1)
            yield
            task.cancel()


async def test_a_node_without_pods_is_published() -> None:
    setting = SuperPodsSetting()
    assert setting.source.age_s() is None
    async with setting.running():
        assert setting.published == [((), ())]
        assert setting.source.age_s() is not None
        assert setting.transport.queries[0]["fieldSelector"] == "spec.nodeName=n1"


async def test_pods_of_this_node_are_added_and_removed() -> None:
    setting = SuperPodsSetting()
    async with setting.running():
        setting.put("elsewhere", node="n2")
        setting.put("host", annotations={})
        made = setting.put("p")
        await asyncio.sleep(1)
        expected = Owned(
            *("a", "web", "p", UID, "a-web", "p", made["metadata"]["uid"]),
            frozenset({"app", "init"}),
            images=(("app", "shop:1"),),
        )
        assert setting.published[-1] == ((expected,), ())
        setting.storage.delete(PODS, "a-web", "p")
        await asyncio.sleep(1)
        pods, problems = setting.published[-1]
        assert (len(pods), len(problems)) == (0, 0)


async def test_a_pods_problem_is_reported_and_others_are_served() -> None:
    setting = SuperPodsSetting()
    setting.put("p")
    setting.put("half", annotations={keys.CLUSTER: "a"})
    setting.storage.put(
        PODS, {"metadata": {"name": "odd", "namespace": "x"}, "spec": {"nodeName": "n1", "containers": 1}}
    )
    async with setting.running():
        pods, problems = setting.published[-1]
        assert [pod.name for pod in pods] == ["p"]
        assert problems == (
            "pod 'x/odd': Expected `array | null`, got `int` - at `$.spec.containers`",
            "pod 'a-web/half': not all of its ownership annotations are set",
        )


async def test_an_oversized_pod_stays_its_tenants() -> None:
    setting = SuperPodsSetting()
    made = setting.put("p")
    async with setting.running():
        options = [{"name": f"o{number}"} for number in range(257)]
        large = {**made, "spec": {**made["spec"], "dnsConfig": {"options": options}}}
        setting.storage.put(PODS, large)
        setting.storage.put(PODS, {**large, "metadata": {"name": "host", "namespace": "kube-system"}})
        await asyncio.sleep(1)
        reason = "too large: spec.dnsConfig.options has more than 256 entries"
        expected = Owned(
            *("a", "web", "p", UID, "a-web", "p", made["metadata"]["uid"]), frozenset(), problem=reason
        )
        pods, problems = setting.published[-1]
        assert pods == (expected,)
        assert sorted(problems) == [f"pod 'a-web/p': {reason}", f"pod 'kube-system/host': {reason}"]

        # Smaller again: served again.
        setting.storage.put(PODS, made)
        await asyncio.sleep(1)
        (served,), _ = setting.published[-1]
        images = (("app", "shop:1"),)
        assert served == replace(expected, containers=CONTAINERS, problem="", images=images)


async def test_an_undecodable_pod_stays_its_tenants() -> None:
    setting = SuperPodsSetting()
    made = setting.put("p")
    setting.storage.put(PODS, {**made, "spec": {**made["spec"], "containers": 1}})
    async with setting.running():
        (pod,), _ = setting.published[-1]
        assert (pod.tenant, pod.name, pod.containers) == ("a", "p", frozenset())
        assert pod.problem.startswith("unreadable: Expected `array | null`")


async def test_a_pod_without_valid_ownership_is_not_served() -> None:
    setting = SuperPodsSetting()
    for name, annotations in (("half", {keys.CLUSTER: "a"}), ("odd", {keys.CLUSTER: 1})):
        metadata = {"name": name, "namespace": "a-web", "annotations": annotations}
        setting.storage.put(PODS, {"metadata": metadata, "spec": {"nodeName": "n1", "containers": 1}})
    async with setting.running():
        pods, problems = setting.published[-1]
        assert (pods, len(problems)) == ((), 2)
