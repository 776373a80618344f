# SPDX-License-Identifier: Apache-2.0
"""Objects at the limits of an API server: each goes down, or is refused with the reason in the tenant.

The other tenant is never held up.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from daemonkit.kube.resources import CONFIG_MAPS, NAMESPACES, PODS, SECRETS, SERVICES, Resource
from devkit.kube.size_rules import MAX_ANNOTATIONS_BYTES, MAX_DATA_BYTES
from devkit.kube.storage import Object
from syncer.kinds.event import KIND as EVENT
from tests.functional.syncer.virtual_clusters import RuledControlPlane, encoded, virtual_clusters

pytestmark = [pytest.mark.functional, pytest.mark.asyncio]

LONG = "a" * 63
LONG_NAME = ".".join(["b" * 62] * 4)
# Each is taken by the tenant's API server, at a limit of its.
PASSES: Mapping[str, tuple[Resource, Object]] = {
    "data": (CONFIG_MAPS, {"data": {"a": "x" * MAX_DATA_BYTES}}),
    "binary": (SECRETS, {"data": {"a": encoded("x" * (MAX_DATA_BYTES - 3))}}),
    "many-keys": (CONFIG_MAPS, {"data": {f"key-{number}": str(number) for number in range(10_000)}}),
    "many-secret-keys": (SECRETS, {"data": {f"key-{number}": encoded("v") for number in range(10_000)}}),
    "two-bytes": (CONFIG_MAPS, {"data": {"a": "\u00e9" * (MAX_DATA_BYTES // 2)}}),
    "four-bytes": (CONFIG_MAPS, {"data": {"a": "\U0001f600" * (MAX_DATA_BYTES // 4)}}),
    "odd-characters": (CONFIG_MAPS, {"data": {"a": '\x00\x1f\x7f\u2028\ufeff\ufffd"\\\u202e'}}),
    "non-ascii-notes": (CONFIG_MAPS, {"annotations": {"note": "\u6f22\u5b57 \u05d0 \U0001f600\n"}}),
    LONG_NAME: (CONFIG_MAPS, {"data": {"a": "1"}}),
    f"{LONG_NAME}1": (SECRETS, {"data": {"a": "MQ=="}}),
    LONG: (SERVICES, {"spec": {"ports": [{"port": 80}]}}),
}
# As protobuf a little below what etcd stores: the annotations of ownership are more than what is left.
LARGE_KEYS = {f"{number:0240}": "x" * 250 for number in range(3_172)}
REFUSED: Mapping[str, tuple[Resource, Object, str, str]] = {
    "notes": (
        CONFIG_MAPS,
        {"annotations": {"a": "x" * (MAX_ANNOTATIONS_BYTES - 1)}},
        "FailedCreate",
        'configmaps "notes" is invalid: metadata.annotations: Too long: may not be more than 262144 bytes',
    ),
    "pod-notes": (
        PODS,
        {
            "annotations": {"a": "x" * (MAX_ANNOTATIONS_BYTES - 1)},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        },
        "SyncRefused",
        "metadata.annotations: with those that the pod has in the super cluster, larger than 262144 bytes",
    ),
    "stored": (CONFIG_MAPS, {"data": LARGE_KEYS}, "FailedCreate", "etcdserver: request is too large"),
    "sent": (
        CONFIG_MAPS,
        {"data": {"a": "\x01" * (MAX_DATA_BYTES // 2)}},
        "FailedCreate",
        "Request entity too large: limit is 3145728",
    ),
}


def _make(plane: RuledControlPlane, resource: Resource, name: str, fields: Object) -> None:
    """Past the API server's rules: its own etcd measures protobuf, which is shorter."""
    metadata = {"namespace": "web", "name": name}
    if "annotations" in fields:
        metadata |= {"annotations": fields["annotations"]}
    rest = {key: value for key, value in fields.items() if key != "annotations"}
    plane.server.storage.create(resource, {"metadata": metadata, **rest})


def _reports(plane: RuledControlPlane) -> dict[str, tuple[str, str]]:
    """The reason and the message of the last Event about each object."""
    names = plane.names(EVENT.resource, "web")
    found = [plane.get(EVENT.resource, "web", each) for each in names]
    return {
        each["involvedObject"]["name"]: (each["reason"], each["message"])
        for each in found
        if each is not None
    }


async def test_objects_at_the_limits_go_down(tmp_path: Path) -> None:
    async with virtual_clusters(tmp_path) as clusters:
        plane = await clusters.add("acme")
        await clusters.add("other")
        await clusters.syncer.start()
        for name, (resource, fields) in PASSES.items():
            _make(plane, resource, name, fields)
        await clusters.until_follows("other", "meanwhile")
        for name, (resource, fields) in PASSES.items():
            await clusters.until_synced_object(resource, "acme", name)
            found: Any = clusters.super.get(resource, "t-acme-web", name)
            assert found.get("data") == fields.get("data")
            notes = fields.get("annotations", {})
            assert {key: found["metadata"]["annotations"].get(key) for key in notes} == notes
        assert _reports(plane) == {}
        # An update of a large one is a small patch.
        large: Any = plane.get(CONFIG_MAPS, "web", "many-keys")
        large["data"] = {**large["data"], "key-0": "changed"}
        plane.server.storage.replace(CONFIG_MAPS, large)
        await clusters.syncer.until(
            lambda: (
                (clusters.super.get(CONFIG_MAPS, "t-acme-web", "many-keys") or {})["data"] == large["data"]
            )
        )


async def test_objects_beyond_the_limits_are_reported(tmp_path: Path) -> None:
    async with virtual_clusters(tmp_path) as clusters:
        plane = await clusters.add("acme")
        await clusters.add("other")
        await clusters.syncer.start()
        await clusters.until_synced("acme", "other")
        for name, (resource, fields, _, _) in REFUSED.items():
            _make(plane, resource, name, fields)
        await clusters.until_follows("other", "meanwhile")
        await clusters.until_follows("acme", "meanwhile")
        expected = {name: (reason, message) for name, (_, _, reason, message) in REFUSED.items()}
        await clusters.syncer.until(lambda: _reports(plane).keys() == expected.keys())
        assert _reports(plane) == expected
        pod: Any = plane.get(PODS, "web", "pod-notes")
        [condition] = [each for each in pod["status"]["conditions"] if each["type"] == "vcnode.io/Synced"]
        assert condition["status"] == "False"
        assert (condition["reason"], condition["message"]) == expected["pod-notes"]
        # What becomes small goes down.
        small: Any = plane.get(CONFIG_MAPS, "web", "stored")
        plane.server.storage.replace(CONFIG_MAPS, {**small, "data": {"a": "1"}})
        await clusters.until_synced_object(CONFIG_MAPS, "acme", "stored")
        page = await clusters.syncer.until_status(
            lambda found: _not_synced(found) == set(REFUSED) - {"stored"}
        )
        assert page["tenants"]


async def test_a_namespace_of_the_longest_name_goes_down(tmp_path: Path) -> None:
    """Two that differ in what is cut off have namespaces of their own."""
    async with virtual_clusters(tmp_path) as clusters:
        plane = await clusters.add("acme")
        await clusters.syncer.start()
        names = [f"{LONG[:-1]}{last}" for last in "xy"]
        for name in names:
            plane.create(NAMESPACES, "", name)
            plane.create(CONFIG_MAPS, name, LONG_NAME, data={"of": name})
        prefix = f"t-acme-{LONG}"[:57]
        await clusters.syncer.until(
            lambda: len([each for each in clusters.super.names(NAMESPACES) if each.startswith(prefix)]) == 2
        )
        for target in [each for each in clusters.super.names(NAMESPACES) if each.startswith(prefix)]:
            assert len(target) == 63
            await clusters.syncer.until(partial(clusters.super.get, CONFIG_MAPS, target, LONG_NAME))
            found: Any = clusters.super.get(CONFIG_MAPS, target, LONG_NAME)
            assert found["data"] == {"of": found["metadata"]["annotations"]["tenancy.x-k8s.io/namespace"]}


def _not_synced(page: dict[str, Any]) -> set[str]:
    return {
        each["object"].rpartition("/")[2]
        for tenant in page["tenants"].values()
        for each in tenant.get("notSynced", ())
    }
