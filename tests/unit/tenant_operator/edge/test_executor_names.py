# SPDX-License-Identifier: Apache-2.0
"""An object of ours cannot be made, as one of its name is there and not of this VirtualCluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from daemonkit.kube.client import ApiError
from daemonkit.kube.kubeconfig import Access
from daemonkit.kube.resources import Status
from tenancy import keys
from tenant_operator.core.observed import Failed, Observed
from tenant_operator.core.steps import GenerateKeys, IssueAuthority, IssueLeaf, OperatorStep
from tenant_operator.edge.executor import Executor
from tenant_operator.edge.requests import SuperClusterWriter
from tenant_operator.edge.write_gate import GatedClient
from tenant_operator.metrics import OperatorMetrics
from tenant_operator.model.objects import Object, Ref
from tenant_operator.model.virtual_cluster import VirtualCluster
from tests.unit.tenant_operator.core.worlds import NOW, FakeWorld, virtual_cluster

pytestmark = pytest.mark.asyncio


def secret_of(step: OperatorStep) -> Ref:
    if isinstance(step, IssueAuthority):
        return Ref("Secret", step.namespace, step.spec.secret)
    assert isinstance(step, IssueLeaf | GenerateKeys)
    return step.spec.ref if isinstance(step, IssueLeaf) else step.secret


def creations() -> list[OperatorStep]:
    """Each step by which a new tenant gets a Secret."""
    world = FakeWorld(virtual_cluster())
    found: list[OperatorStep] = []
    for _ in range(20):
        made = world.plan()
        found += [each for each in made.steps if isinstance(each, IssueAuthority | IssueLeaf | GenerateKeys)]
        for step in made.steps:
            world.carry_out(step)
        world.finish(made)
    return found


CREATIONS = creations()


class TakenSecrets:
    """A super cluster with one Secret, whose name and labels a test gives."""

    server = "https://fake:6443"

    def __init__(self, taken: Ref, labels: dict[str, str] | None) -> None:
        self.taken = taken
        self.secret = {"metadata": {"name": taken.name, "namespace": taken.namespace, "labels": labels}}
        self.made: dict[str, Object] = {}

    async def request(
        self, method: str, path: str, params: Mapping[str, str], body: bytes | None = None, **_: object
    ) -> bytes:
        if method == "GET":
            found = self.secret if path == self.taken.path else self.made.get(path)
            if found is None:
                raise ApiError(Status(code=404, reason="NotFound"))
            return msgspec.json.encode(found)
        assert method == "POST"
        manifest = msgspec.json.decode(body or b"")
        path = f"{path}/{manifest['metadata']['name']}"
        if path == self.taken.path:
            raise ApiError(Status(code=409, reason="AlreadyExists"))
        self.made[path] = manifest
        return msgspec.json.encode(manifest)


def open_nothing(access: Access) -> GatedClient:
    raise AssertionError(access)


async def failures(taken: Ref, labels: dict[str, str] | None) -> list[Failed]:
    """Of all creations, each tried on its own after the authorities."""
    server: Any = TakenSecrets(taken, labels)
    executor = Executor(
        SuperClusterWriter(server), OperatorMetrics(), lambda: NOW, open_nothing, open_nothing
    )
    cluster = msgspec.convert(virtual_cluster(), VirtualCluster)
    found: list[Failed] = []
    for step in CREATIONS:
        found += (await executor.carry_out(Observed(cluster, {}, {}, NOW), [step]))[0]
    return found


@pytest.mark.parametrize("at", range(len(CREATIONS)))
@pytest.mark.parametrize(
    "labels", [None, {}, {keys.MANAGED_BY: "other"}, {keys.MANAGED_BY: "vc-operator", keys.VC_UID: "another"}]
)
async def test_secret_of_another_is_named(at: int, labels: dict[str, str] | None) -> None:
    ref = secret_of(CREATIONS[at])
    found = [each for each in await failures(ref, labels) if each.ref == ref]
    assert [each.reason for each in found] == ["NameTaken"]
    selector = "tenancy.x-k8s.io/vcuid=3c6ef372-0000-4000-8000-000000000001"
    assert found[0].message == (
        f"it exists without labels vcnode.io/managed-by=vc-operator,{selector}; delete or rename it, or, if "
        f"the labels were removed, put them back: kubectl label secret {ref.name} -n {ref.namespace} "
        f"vcnode.io/managed-by=vc-operator {selector} --overwrite"
    )


@pytest.mark.parametrize("at", range(len(CREATIONS)))
async def test_secret_that_was_made_meanwhile_is_no_fault(at: int) -> None:
    labels = {keys.MANAGED_BY: "vc-operator", keys.VC_UID: virtual_cluster()["metadata"]["uid"]}
    ref = secret_of(CREATIONS[at])
    assert [each for each in await failures(ref, labels) if each.ref == ref] == []


async def test_kubeconfig_of_people_is_among_them() -> None:
    assert Ref("Secret", "tenants", "acme-kubeconfig") in {secret_of(each) for each in CREATIONS}
