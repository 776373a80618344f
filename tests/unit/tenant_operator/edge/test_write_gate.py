# SPDX-License-Identifier: Apache-2.0
"""After another replica has begun to lead, no step of any type sends a write, not even one that has begun."""

import typing
from collections.abc import Callable

import pytest

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
)
from tenant_operator.edge.write_gate import GatedClient, NotLeaderError
from tenant_operator.model.objects import Ref
from tenant_operator.pki import catalog, issuing, rotating
from tenant_operator.pki.facts import digest_of
from tenant_operator.pki.plan import RotateSecret
from tenant_operator.pki.rotation import RotationStep
from tests.unit.tenant_operator.control_planes import CONTROL_PLANE
from tests.unit.tenant_operator.defaults.manifests import config_map, desired
from tests.unit.tenant_operator.edge.test_executor_defaults import COPY, SOURCE, TEXT, FakePlaces, settle
from tests.unit.tenant_operator.edge.test_tenant_defaults import FakeTenantServer
from tests.unit.tenant_operator.provisioners.imported.secrets_of_others import encoded

pytestmark = pytest.mark.asyncio

LABELS = {"a": "b"}
POSTGRESQL = Ref("Secret", "vcnode-system", "postgresql")
AUTHORITY = catalog.AUTHORITIES[0]
ENCRYPTION = Ref("Secret", "key", "encryption-config")
LEAF = catalog.leaves(CONTROL_PLANE, ("10.96.0.9",), ())[0]
SIGNER = Ref("Secret", LEAF.namespace, "signer")
NAMESPACE = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {"name": "key", "annotations": {"tenancy.x-k8s.io/vcuid": "u"}},
}
STEPS: tuple[OperatorStep, ...] = (
    Apply(config_map("a")),
    ClaimNamespace(NAMESPACE),
    Remove(SOURCE, "u"),
    EndPods("key", "2027-01-15T08:00:00Z"),
    PatchCluster({"metadata": {}}),
    IssueAuthority(AUTHORITY, "key", LABELS),
    IssueLeaf(LEAF, SIGNER, LABELS, {}, b""),
    GenerateKeys(Ref("Secret", "key", "service-account-keys"), LABELS),
    settle(desired(config_map("a")), desired(config_map("b"))),
    CopyKubeconfig(SOURCE, "config", COPY, digest_of(TEXT.encode()), LABELS),
    CopySecret(SOURCE, COPY, LABELS),
    AddEncryptionKeys(ENCRYPTION, COPY, LABELS, "restore"),
    MakeDatabase(POSTGRESQL, COPY, "t_1", 20, LABELS),
    DropDatabase(POSTGRESQL, COPY, "u", "t_1"),
    Rotate(RotateSecret(AUTHORITY.secret, SIGNER, RotationStep.BEGIN, spec=AUTHORITY), LABELS),
)


class FakeAnsweringServer(FakeTenantServer):
    """Takes each write."""

    async def request(  # type: ignore[override]
        self,
        method: str,
        path: str,
        *args: object,
        before_send: Callable[[], None] | None = None,
        **kwargs: int,
    ) -> bytes:
        if method == "GET":
            return await super().request(method, path, {}, limit_bytes=kwargs["limit_bytes"])
        if before_send is not None:
            before_send()
        self.requests.append((method, path, ""))
        return b'{"metadata": {"resourceVersion": "2"}}'


class FakeLeadership(FakePlaces):
    """Leads for so many writes. Whatever is sent is answered."""

    def __init__(self, writes: int) -> None:
        super().__init__()
        objects = self.super.objects
        self.super, self.tenant = FakeAnsweringServer(), FakeAnsweringServer()
        self.super.objects = objects
        ending = {"name": "pod", "uid": "u", "deletionTimestamp": "2027-01-15T08:00:00Z"}
        self.super.objects["/api/v1/namespaces/key/pods"] = {"items": [{"metadata": ending}]}
        self.left = writes
        pair = issuing.new_authority(AUTHORITY, 7.0)
        config, _ = rotating.new_encryption_config()
        self.put(ENCRYPTION, {key: encoded(value) for key, value in config.items()})
        server = {"endpoint": "postgres://a:b@db.example", "ca.crt": "-----BEGIN CERTIFICATE-----"}
        self.put(POSTGRESQL, {key: encoded(value.encode()) for key, value in server.items()})
        data = issuing.authority_data(pair)
        self.put(SIGNER, {key: encoded(value) for key, value in data.items()})

    def may_write(self) -> bool:
        self.left -= 1
        return self.left >= 0

    @property
    def writes(self) -> list[str]:
        return [*self.super.writes(), *self.tenant.writes(), *self.statements]


async def test_each_type_of_step_is_asked() -> None:
    assert {type(each) for each in STEPS} == set(typing.get_args(OperatorStep))


@pytest.mark.parametrize("step", STEPS, ids=lambda each: type(each).__name__)
async def test_without_leadership_nothing_is_written(step: OperatorStep) -> None:
    places = FakeLeadership(0)
    assert await places.carry_out(step) == ["SuperClusterUnreachable"]
    assert places.writes == []


@pytest.mark.parametrize("step", STEPS, ids=lambda each: type(each).__name__)
async def test_the_next_write_of_a_step_is_asked_for(step: OperatorStep) -> None:
    """One write is allowed: a step with a second one ends there."""
    places = FakeLeadership(1)
    await places.carry_out(step)
    assert len(places.writes) == 1


@pytest.mark.parametrize(
    ("method", "is_sent"),
    [("GET", True), ("POST", False), ("PUT", False), ("PATCH", False), ("DELETE", False), ("QUERY", False)],
)
async def test_what_is_no_read_is_asked_for(method: str, is_sent: bool) -> None:
    server = FakeTenantServer()
    server.answers["/x"] = b"{}"
    client = GatedClient(server, lambda: False)
    if is_sent:
        assert await client.request(method, "/x", {}, limit_bytes=9) == b"{}"
    else:
        with pytest.raises(NotLeaderError):
            await client.request(method, "/x", {}, limit_bytes=9)
    assert len(server.requests) == is_sent


async def test_the_question_is_asked_at_the_sending() -> None:
    """A request waits for a connection first: what was true before does not count."""
    asked: list[str] = []

    class SlowServer(FakeTenantServer):
        async def request(
            self, *args: object, before_send: Callable[[], None] | None = None, **_: object
        ) -> bytes:
            asked.append("connected")
            assert before_send is not None
            before_send()
            return b"{}"

    def may_write() -> bool:
        asked.append("asked")
        return True

    client = GatedClient(SlowServer(), may_write)
    await client.request("PUT", "/x", {}, before_send=lambda: asked.append("sent"))
    assert asked == ["connected", "asked", "sent"]
