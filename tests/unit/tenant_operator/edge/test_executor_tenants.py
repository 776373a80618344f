# SPDX-License-Identifier: Apache-2.0
"""Which steps are carried out in a tenant's API server, and that each of them has an end."""

from __future__ import annotations

import asyncio
import typing
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest

from daemonkit.kube.kubeconfig import Access
from tenant_operator.core.observed import Observed
from tenant_operator.core.steps import (
    AddEncryptionKeys,
    Apply,
    ClaimNamespace,
    CopyKubeconfig,
    CopySecret,
    DropDatabase,
    EndPods,
    GenerateKeys,
    IssueAuthority,
    IssueLeaf,
    MakeDatabase,
    OperatorStep,
    PatchCluster,
    Remove,
    Rotate,
    SettleDefaults,
    is_in_tenant,
)
from tenant_operator.defaults.desired import DesiredList
from tenant_operator.defaults.inventory import Inventory
from tenant_operator.defaults.record import PassRecord
from tenant_operator.edge import executor, stored_secrets, tenant_defaults
from tenant_operator.edge.executor import Executor
from tenant_operator.edge.requests import SuperClusterWriter
from tenant_operator.edge.write_gate import GatedClient
from tenant_operator.metrics import OperatorMetrics
from tenant_operator.model import names
from tenant_operator.model.objects import Ref
from tenant_operator.model.virtual_cluster import VirtualCluster
from tenant_operator.pki import catalog
from tenant_operator.pki.issuing import authority_data, new_authority
from tenant_operator.pki.plan import RotateSecret
from tenant_operator.pki.rotation import ENCRYPTION_KEY, RotationStep
from tests.unit.tenant_operator.core.worlds import NOW, virtual_cluster
from tests.unit.tenant_operator.defaults.manifests import config_map, desired
from tests.unit.tenant_operator.edge.api_answers import FakeAnswers
from tests.unit.tenant_operator.provisioners.imported.secrets_of_others import encoded, kubeconfig

pytestmark = pytest.mark.asyncio

SECRET, OTHER = Ref("Secret", "key", "one"), Ref("Secret", "key", "other")
CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "key"}}
NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "key", "annotations": {}}}
AUTHORITY = catalog.AUTHORITIES[0]
LEAF = catalog.LeafSpec("key", "leaf", names.CLUSTER_CA, "name", (), 1)
DESIRED = DesiredList((desired(config_map("x")),))


def rotate(step: RotationStep) -> Rotate:
    what, secret = (
        (ENCRYPTION_KEY, names.ENCRYPTION_CONFIG)
        if step is RotationStep.REWRITE
        else (names.FRONT_PROXY_CA, names.FRONT_PROXY_CA)
    )
    return Rotate(RotateSecret(what, Ref("Secret", "key", secret), step, ""), {}, "s")


def repr_of(step: OperatorStep) -> str:
    return f"{type(step).__name__} {step.rotation.step if isinstance(step, Rotate) else ''}".strip()


STEPS: tuple[OperatorStep, ...] = (
    Apply(CONFIG_MAP),
    ClaimNamespace(NAMESPACE),
    Remove(SECRET, "uid"),
    EndPods("key", "2026-01-01T00:00:00Z"),
    IssueAuthority(AUTHORITY, "key", {}),
    IssueLeaf(LEAF, OTHER, {}, {}, b""),
    GenerateKeys(Ref("Secret", "key", names.ENCRYPTION_CONFIG), {}),
    *(rotate(each) for each in RotationStep),
    PatchCluster({}),
    SettleDefaults(
        Ref("Secret", "key", names.OPERATOR_CLIENT), OTHER, DESIRED, Inventory(), PassRecord(), "a -n t", {}
    ),
    CopyKubeconfig(SECRET, "key", OTHER, "digest", {}),
    CopySecret(SECRET, OTHER, {}),
    AddEncryptionKeys(SECRET, OTHER, {}, "mark"),
    MakeDatabase(SECRET, OTHER, "name", 1, {}),
    DropDatabase(SECRET, OTHER, "uid", "name"),
)
PAIR = authority_data(new_authority(AUTHORITY, NOW))
DATA = {
    **{key: encoded(value) for key, value in PAIR.items()},
    "former.crt": encoded(PAIR["tls.crt"]),
    names.KUBECONFIG_KEY: encoded(kubeconfig()),
    "config.yaml": encoded(b"{}"),
}


class FilledSuper(FakeAnswers):
    """Has each Secret, with the data of all of them."""

    async def request(
        self, method: str, path: str, params: Mapping[str, str], body: bytes | None = None, **_: object
    ) -> bytes:
        metadata = {"name": path.rpartition("/")[2], "namespace": "key", "resourceVersion": "7"}
        return msgspec.json.encode({"kind": "Secret", "metadata": metadata, "data": DATA})


class SilentTenant:
    """Never answers."""

    async def request(self, *_: object, **__: object) -> bytes:
        await asyncio.Event().wait()
        raise AssertionError

    async def close(self) -> None:
        pass


class OpenedError(Exception):
    """A client of the tenant was opened."""


def opens(_: Access) -> GatedClient:
    raise OpenedError


def executor_of(open_tenant: Callable[[Access], GatedClient]) -> Executor:
    client: Any = FilledSuper({})
    writer = SuperClusterWriter(GatedClient(client, lambda: True))
    return Executor(writer, OperatorMetrics(), lambda: NOW, open_tenant, open_tenant, lambda *_: None)


OBSERVED = Observed(msgspec.convert(virtual_cluster(), VirtualCluster), {}, {}, NOW)


async def test_all_classes_of_steps_are_here() -> None:
    assert {type(each) for each in STEPS} == set(typing.get_args(OperatorStep))


@pytest.mark.parametrize("step", STEPS, ids=repr_of)
async def test_who_opens_a_client_of_a_tenant_is_in_it(step: OperatorStep) -> None:
    has_opened = False
    try:
        await executor_of(opens).carry_out(OBSERVED, [step])
    except OpenedError:
        has_opened = True
    except (KeyError, ValueError):
        pass  # the data are not the step's
    assert has_opened == is_in_tenant(step)


@pytest.mark.parametrize("step", [each for each in STEPS if is_in_tenant(each)], ids=repr_of)
async def test_a_silent_tenant_ends_no_later(step: OperatorStep, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in (
        (executor, "IN_TENANT_TIMEOUT_S"),
        (stored_secrets, "STEP_TIMEOUT_S"),
        (tenant_defaults, "PASS_TIMEOUT_S"),
    ):
        assert 60.0 <= getattr(module, name) <= 70.0
        monkeypatch.setattr(module, name, 0.0)
    client: Any = SilentTenant()
    carried = executor_of(lambda _: GatedClient(client, lambda: True))
    failures, _ = await carried.carry_out(OBSERVED, [step])
    expected = [] if isinstance(step, SettleDefaults) else ["TenantUnreachable"]
    assert [each.reason for each in failures] == expected


class AnyAnswer:
    """Answers each question with this."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer

    async def request(self, *_: object, **__: object) -> bytes:
        return self.answer

    async def close(self) -> None:
        pass


BUNDLES = (
    "no certificate",
    "-----END CERTIFICATE-----",
    "-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n",
    "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\nrest",
    "\u00e9\u0000-----BEGIN CERTIFICATE-----\n\u00e9\n-----END CERTIFICATE-----",
)
ANSWERS = (
    *(b"", b"{", b"[]", b"null", b"7", b'"x"', b"\xff", b"[" * 100_000, b"{}"),
    *(b'{"metadata":7}', b'{"metadata":{},"data":7,"items":7}', b'{"metadata":{},"items":[7]}'),
    *(
        msgspec.json.encode(
            {
                "metadata": {"resourceVersion": "1"},
                "data": {"client-ca-file": text, "requestheader-client-ca-file": text},
            }
        )
        for text in BUNDLES
    ),
)


@pytest.mark.parametrize("answer", ANSWERS, ids=range(len(ANSWERS)))
@pytest.mark.parametrize("step", [each for each in STEPS if is_in_tenant(each)], ids=repr_of)
async def test_any_answer_is_a_failure_at_most(step: OperatorStep, answer: bytes) -> None:
    """A tenant writes what it likes into its objects: that is a condition, never a traceback."""
    client: Any = AnyAnswer(answer)
    carried = executor_of(lambda _: GatedClient(client, lambda: True))
    failures, _ = await carried.carry_out(OBSERVED, [step])
    assert {each.reason for each in failures} <= {"TenantUnreachable"}
