# SPDX-License-Identifier: Apache-2.0
"""Steps that copy keys of encryption at rest, carried out against a fake API server."""

import base64
import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from daemonkit.kube.client import ApiError
from daemonkit.kube.kubeconfig import Access
from daemonkit.kube.resources import Status
from tenant_operator.core.observed import Observed
from tenant_operator.core.steps import AddEncryptionKeys, CopySecret
from tenant_operator.edge.executor import Executor
from tenant_operator.edge.requests import SuperClusterWriter
from tenant_operator.edge.write_gate import GatedClient
from tenant_operator.metrics import OperatorMetrics
from tenant_operator.model.objects import Object, Ref
from tenant_operator.model.virtual_cluster import VirtualCluster
from tests.unit.tenant_operator.core.worlds import virtual_cluster
from tests.unit.tenant_operator.life.test_store_keys import config

pytestmark = pytest.mark.asyncio

CONFIG = Ref("Secret", "key", "encryption-config")
COPY = Ref("Secret", "key", "encryption-config-backup-1")
SECRETS = "/api/v1/namespaces/key/secrets"


def open_nothing(access: Access) -> GatedClient:
    raise AssertionError(access)


class FakeSecrets:
    """Secrets by their paths."""

    def __init__(self, **texts: bytes) -> None:
        self.objects: dict[str, Object] = {}
        for name, text in texts.items():
            ref = {"config": CONFIG, "copy": COPY}[name]
            metadata = {"name": ref.name, "namespace": "key", "resourceVersion": "7"}
            data = {"config.yaml": base64.b64encode(text).decode()}
            self.objects[ref.path] = {"metadata": metadata, "data": data}

    async def request(
        self, method: str, path: str, params: Mapping[str, str], body: bytes | None = None, **_: Any
    ) -> bytes:
        if method != "GET":
            value = msgspec.json.decode(body or b"")
            name = value["metadata"]["name"]
            assert method != "PUT" or value["metadata"]["resourceVersion"] == "7"
            self.objects[f"{SECRETS}/{name}"] = value
            return msgspec.json.encode(value)
        if path not in self.objects:
            raise ApiError(Status(code=404, reason="NotFound"))
        return msgspec.json.encode(self.objects[path])

    async def carry_out(self, step: AddEncryptionKeys | CopySecret) -> list[tuple[str, str]]:
        """Returns reason and message of what failed."""
        writer = SuperClusterWriter(GatedClient(self, lambda: True))  # type: ignore[arg-type]
        executor = Executor(
            writer,
            OperatorMetrics(),
            lambda: 7.0,
            open_nothing,
            open_nothing,
        )
        cluster = msgspec.convert(virtual_cluster(), VirtualCluster)
        failures, _ = await executor.carry_out(Observed(cluster, {}, {}, 7.0), [step])
        return [(each.reason, each.message) for each in failures]

    def names(self, ref: Ref) -> list[str]:
        """Of the keys that a Secret has."""
        value = json.loads(base64.b64decode(self.objects[ref.path]["data"]["config.yaml"]))
        return [each["name"] for each in value["resources"][0]["providers"][0]["secretbox"]["keys"]]


def add() -> AddEncryptionKeys:
    return AddEncryptionKeys(COPY, CONFIG, {"a": "b"}, "mark-1")


async def test_keys_are_added_behind_those_that_are_there() -> None:
    secrets = FakeSecrets(config=config("new"), copy=config("old"))
    assert await secrets.carry_out(add()) == []
    assert secrets.names(CONFIG) == ["new", "old"]
    annotations = secrets.objects[CONFIG.path]["metadata"]["annotations"]
    assert annotations["vcnode.io/restore-token"] == "mark-1"
    # It is no edit by hand.
    assert annotations["vcnode.io/data-digest"]


async def test_new_configuration_writes_with_its_own_key() -> None:
    secrets = FakeSecrets(copy=config("old"))
    assert await secrets.carry_out(add()) == []
    own, read = secrets.names(CONFIG)
    assert read == "old"
    annotations = secrets.objects[CONFIG.path]["metadata"]["annotations"]
    assert annotations["vcnode.io/key-ids"] == own
    assert annotations["vcnode.io/restore-token"] == "mark-1"


@pytest.mark.parametrize("texts", [{"config": config("new")}, {"config": config("new"), "copy": b"secret"}])
async def test_missing_keys_are_named_without_any_of_them(texts: dict[str, bytes]) -> None:
    secrets = FakeSecrets(**texts)
    message = f"{COPY} or {CONFIG} has no usable config.yaml"
    assert await secrets.carry_out(add()) == [("EncryptionKeysUnusable", message)]
    assert secrets.names(CONFIG) == ["new"]


@pytest.mark.parametrize(
    ("home", "copy", "is_same"),
    [
        ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", True),
        ("2026-01-02T00:00:00Z", "2026-01-02T00:00:00Z", True),
        ("2026-01-03T00:00:00Z", "2026-01-02T00:00:00Z", False),
        (None, "2026-01-02T00:00:00Z", False),
        ("2026-01-01T00:00:00Z", "", False),
    ],
)
async def test_namespace_made_anew_has_no_keys_of_before(home: str | None, copy: str, is_same: bool) -> None:
    secrets = FakeSecrets(copy=config("old"))
    secrets.objects[COPY.path]["metadata"]["creationTimestamp"] = copy
    if home is not None:
        value = {"metadata": {"name": "tenants", "creationTimestamp": home}}
        secrets.objects["/api/v1/namespaces/tenants"] = value
    failures = await secrets.carry_out(msgspec.structs.replace(add(), namespace="tenants"))
    assert [reason for reason, _ in failures] == ([] if is_same else ["BackupOfAnotherNamespace"])
    assert (CONFIG.path in secrets.objects) is is_same


async def test_copy_has_all_values_of_its_source() -> None:
    secrets = FakeSecrets(config=config("new"))
    notes = {"vcnode.io/data-digest": "d", "vcnode.io/key-ids": "k"}
    secrets.objects[CONFIG.path]["metadata"]["annotations"] = notes | {"example.com/other": "x"}
    assert await secrets.carry_out(CopySecret(CONFIG, COPY, {"a": "b"})) == []
    assert secrets.objects[COPY.path]["metadata"]["annotations"] == notes
    assert secrets.objects[COPY.path]["data"] == secrets.objects[CONFIG.path]["data"]
    assert secrets.objects[COPY.path]["metadata"]["labels"] == {"a": "b"}


async def test_copy_of_nothing_is_a_failure() -> None:
    failures = await FakeSecrets().carry_out(CopySecret(CONFIG, COPY, {}))
    assert failures == [("SecretMissing", f"{CONFIG} does not exist")]
    assert await FakeSecrets().carry_out(CopySecret(CONFIG, COPY, {}, is_optional=True)) == []
