# SPDX-License-Identifier: Apache-2.0
import asyncio

import pytest

from daemonkit.kube.client import AnswerTooLargeError, ApiError, UnreachableError
from daemonkit.kube.reflector import Reflector
from daemonkit.kube.reflector_policy import Timing
from daemonkit.kube.resources import CONFIG_MAPS, NAMESPACES, Key, MetadataOnly
from devkit.kube.cluster import Cluster, ClusterSettings
from devkit.kube.in_process import InProcessClient
from devkit.kube.storage import Storage

pytestmark = pytest.mark.asyncio

PATH = CONFIG_MAPS.path("default")


def client(max_history: int = 10_000) -> InProcessClient:
    return InProcessClient(Cluster(Storage(max_history=max_history), ClusterSettings(), clock=lambda: 0.0))


async def test_requests_are_answered_as_by_a_server() -> None:
    asked = client()
    await asked.request("POST", PATH, body=b'{"metadata": {"name": "a"}}')
    with pytest.raises(ApiError, match="409 AlreadyExists"):
        await asked.request("POST", PATH, body=b'{"metadata": {"name": "a"}}', can_repeat=True)
    with pytest.raises(ApiError, match="404 NotFound"):
        await asked.request("GET", "/metrics")
    with pytest.raises(AnswerTooLargeError):
        await asked.request("GET", PATH, limit_bytes=10)
    assert await asked.request("GET", "/readyz") == b"ok"
    await asked.close()
    asked.failures = [UnreachableError("once")]
    with pytest.raises(UnreachableError):
        await asked.request("GET", PATH)
    asked.cluster.storage.absent.add(CONFIG_MAPS)
    with pytest.raises(ApiError, match="404 NotFound"):
        await asked.request("GET", f"{PATH}/a")


@pytest.mark.parametrize("max_history", [10_000, 20])
async def test_a_reflector_follows_it(max_history: int) -> None:
    asked = client(max_history)
    reflectors = [
        Reflector(asked, resource, MetadataOnly, timing=Timing(watch_timeout_s=100.0))
        for resource in (CONFIG_MAPS, NAMESPACES)
    ]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each.run()) for each in reflectors]
        for number in range(100):
            body = b'{"metadata": {"name": "a%d"}}' % number
            await asked.request("POST", PATH, body=body)
            await asyncio.sleep(1.0)
        expected: set[Key] = {("default", f"a{number}") for number in range(100)}
        assert expected < set(reflectors[0].objects)
        assert len(reflectors[1].objects) == 4
        # Those who see none of the writes are not left behind.
        await asyncio.sleep(600.0)
        assert [each.lists for each in reflectors] == [1, 1]
        for task in tasks:
            task.cancel()
