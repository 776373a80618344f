# SPDX-License-Identifier: Apache-2.0
"""Steps of the defaults and of imported control planes, carried out against two fake API servers."""

import json
from collections.abc import Callable, Iterable

import msgspec
import pytest

from daemonkit.kube.client import UnreachableError
from daemonkit.kube.kubeconfig import Access
from tenancy import keys
from tenant_operator.core.observed import Observed
from tenant_operator.core.steps import ClaimNamespace, CopyKubeconfig, OperatorStep, SettleDefaults
from tenant_operator.datastores.database_server import DatabaseServer
from tenant_operator.datastores.sql import Statement
from tenant_operator.defaults.desired import DesiredList, DesiredObject
from tenant_operator.defaults.inventory import Inventory, read_inventory
from tenant_operator.defaults.record import PassRecord, read_record
from tenant_operator.edge.executor import Executor
from tenant_operator.edge.requests import SuperClusterWriter
from tenant_operator.edge.write_gate import GatedClient
from tenant_operator.metrics import OperatorMetrics
from tenant_operator.model.objects import Object, Ref
from tenant_operator.model.virtual_cluster import VirtualCluster
from tenant_operator.pki.facts import digest_of
from tests.unit.tenant_operator.core.worlds import virtual_cluster
from tests.unit.tenant_operator.defaults import manifests
from tests.unit.tenant_operator.defaults.manifests import config_map, desired
from tests.unit.tenant_operator.edge.test_tenant_defaults import FakeTenantServer, refusal
from tests.unit.tenant_operator.provisioners.imported.secrets_of_others import encoded, kubeconfig

pytestmark = pytest.mark.asyncio

TEXT = kubeconfig()
INVENTORY = Ref("ConfigMap", "key", "defaults-inventory")
SOURCE = Ref("Secret", "tenants", "vc-acme")
COPY = Ref("Secret", "key", "admin-kubeconfig")


class FakePlaces:
    def __init__(self) -> None:
        self.super, self.tenant = FakeTenantServer(), FakeTenantServer()
        self.put(Ref("Secret", "key", "operator-client"), {"kubeconfig": encoded(TEXT)})
        self.put(SOURCE, {"config": encoded(TEXT)})
        self.servers: list[str] = []
        self.statements: list[str] = []
        self.metrics = OperatorMetrics()

    def put(self, ref: Ref, data: Object) -> None:
        metadata = {"name": ref.name, "namespace": ref.namespace, "uid": "u", "resourceVersion": "1"}
        self.super.objects[ref.path] = {"metadata": metadata, "data": data}

    def may_write(self) -> bool:
        return True

    def open_tenant(self, access: Access) -> GatedClient:
        self.servers.append(access.server)
        return GatedClient(self.tenant, self.may_write)

    def run_statements(
        self,
        server: DatabaseServer,
        statements: Iterable[Statement],
        monotonic: Callable[[], float],
        before_send: Callable[[], None],
    ) -> None:
        for each in statements:
            before_send()
            self.statements.append(each.text)

    async def carry_out(self, step: OperatorStep) -> list[str]:
        """Returns the reasons of failures."""
        writer = SuperClusterWriter(GatedClient(self.super, self.may_write))
        executor = Executor(
            writer, self.metrics, lambda: 7.0, self.open_tenant, self.open_tenant, self.run_statements
        )
        cluster = msgspec.convert(virtual_cluster(), VirtualCluster)
        failures, _ = await executor.carry_out(Observed(cluster, {}, {}, 7.0), [step])
        return [each.reason for each in failures]

    def data(self, ref: Ref) -> dict[str, str]:
        found: dict[str, str] = self.super.objects[ref.path]["data"]
        return found


def settle(*objects: DesiredObject) -> SettleDefaults:
    credential = Ref("Secret", "key", "operator-client")
    return SettleDefaults(
        credential, INVENTORY, DesiredList(objects), Inventory(), PassRecord(), "acme -n tenants", {"a": "b"}
    )


async def test_a_pass_is_written_with_what_it_came_to() -> None:
    places = FakePlaces()
    step = settle(desired(config_map("a", x="1")))
    assert await places.carry_out(step) == []
    data = places.data(INVENTORY)
    assert [str(each.ref) for each in read_inventory(data["inventory"]).entries] == ["ConfigMap a/a"]
    assert read_inventory(data["inventory"]).digest == step.desired.digest
    assert read_record(data["record"]) == PassRecord(step.desired.digest, 7.0)
    assert (places.servers, places.tenant.is_closed) == (["https://10.96.7.7:6443"], True)


async def test_a_copied_secret_comes_from_the_root_namespace() -> None:
    places = FakePlaces()
    secret = {**config_map("a"), "kind": "Secret"}
    ref = manifests.ref_of(secret)
    step = settle(DesiredObject(ref, manifests.path_of(ref), secret, "d", copied_from="metrics-client"))
    assert await places.carry_out(step) == []
    record = read_record(places.data(INVENTORY)["record"])
    assert record == PassRecord(
        step.desired.digest, 7.0, 1, ("Secret a/a waits for Secret metrics-client of the root namespace",)
    )
    places.put(Ref("Secret", "key", "metrics-client"), {"tls.crt": "Y2VydA==", "tls.key": "a2V5"})
    assert await places.carry_out(step) == []
    assert places.tenant.objects[manifests.path_of(ref)]["data"] == {"tls.crt": "Y2VydA==", "tls.key": "a2V5"}
    assert "a2V5" not in json.dumps(places.data(INVENTORY))


async def test_without_a_credential_nothing_is_written() -> None:
    places = FakePlaces()
    places.put(Ref("Secret", "key", "operator-client"), {})
    assert await places.carry_out(settle()) == ["CredentialUnusable"]
    assert INVENTORY.path not in places.super.objects


IDENTITY = {keys.VC_UID: "u1", keys.VC_ROOT_NAMESPACE: "true"}
OURS: Object = {"manager": "vc-operator", "operation": "Update"}


@pytest.mark.parametrize(
    ("annotations", "managers", "reasons"),
    [
        (IDENTITY, [OURS], []),
        (IDENTITY, [{"manager": "kubectl-create"}, OURS], []),
        (IDENTITY, [{"manager": "kubectl-create"}], ["RootNamespaceTaken"]),
        (IDENTITY, [], ["RootNamespaceTaken"]),
        (IDENTITY, None, ["RootNamespaceTaken"]),
        ({**IDENTITY, keys.VC_UID: "u2"}, [OURS], ["RootNamespaceTaken"]),
        ({keys.VC_UID: "u1"}, [OURS], ["RootNamespaceTaken"]),
        (None, [OURS], ["RootNamespaceTaken"]),
    ],
)
async def test_a_prepared_namespace_is_not_claimed(
    annotations: Object | None, managers: list[Object] | None, reasons: list[str]
) -> None:
    """Whoever has made it may have rights in it."""
    places = FakePlaces()
    ref = Ref("Namespace", "", "key")
    metadata = {"name": "key", "annotations": IDENTITY}
    places.super.refuse = lambda method, _path: (
        refusal(409, "AlreadyExists", "it exists") if method == "POST" else None
    )
    there = {"name": "key", "annotations": annotations, "managedFields": managers}
    places.super.objects[ref.path] = {"metadata": there}
    step = ClaimNamespace({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    assert await places.carry_out(step) == reasons
    assert bool(places.super.writes()[1:]) is not bool(reasons)


def copy(digest: str) -> CopyKubeconfig:
    return CopyKubeconfig(SOURCE, "config", COPY, digest, {"a": "b"})


async def test_the_kubeconfig_that_was_judged_is_copied() -> None:
    places = FakePlaces()
    assert await places.carry_out(copy(digest_of(TEXT.encode()))) == []
    assert places.data(COPY) == {"admin-kubeconfig": encoded(TEXT)}


@pytest.mark.parametrize("data", [{"config": encoded("other")}, {}])
async def test_another_kubeconfig_is_not_copied(data: Object) -> None:
    places = FakePlaces()
    places.put(SOURCE, data)
    assert await places.carry_out(copy(digest_of(TEXT.encode()))) == ["SourceChanged"]
    assert COPY.path not in places.super.objects


@pytest.mark.parametrize("code", [0, *range(400, 432), *range(500, 505)])
async def test_each_cause_has_a_series_before_its_first_failure(code: int) -> None:
    """`increase()` misses an event that its series comes with. 0: the super cluster is not reached."""
    places = FakePlaces()
    error = refusal(code, "Refused", "no") if code else UnreachableError("no")
    places.super.refuse = lambda _method, _path: error
    before = [labels for labels, _ in places.metrics.failures.snapshot().series]
    assert len(await places.carry_out(settle())) == 1
    assert [labels for labels, _ in places.metrics.failures.snapshot().series] == before
