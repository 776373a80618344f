# SPDX-License-Identifier: Apache-2.0
"""What a probe finds of control planes of each shape, from their Secrets and their API servers."""

import pytest

from daemonkit.kube.client import ApiClient
from daemonkit.kube.kubeconfig import Access
from tenant_operator.core.observed import ProbeResult
from tenant_operator.core.probes import SourceProbe
from tenant_operator.edge.imported_probe import ask_source
from tenant_operator.model.objects import Object, Ref
from tenant_operator.model.virtual_cluster import ImportRef
from tests.unit.tenant_operator.edge.test_imported_source import FakeImportedServer, server
from tests.unit.tenant_operator.provisioners.imported import secrets_of_others as others
from tests.unit.tenant_operator.provisioners.imported.secrets_of_others import OthersSecret

pytestmark = pytest.mark.asyncio

SUPER_SERVER = "https://10.0.0.1:6443"


class FakeReader:
    """The Secrets of namespace `tenants`, and the super cluster's kube-system."""

    def __init__(self, *secrets: OthersSecret) -> None:
        self.objects: dict[Ref, Object] = {
            Ref("Secret", "tenants", each.name): each.object for each in secrets
        }
        self.objects[Ref("Namespace", "", "kube-system")] = {"metadata": {"uid": "super-uid"}}
        self.read: list[Ref] = []

    async def get(self, ref: Ref) -> Object | None:
        self.read.append(ref)
        return self.objects.get(ref)


class FakeImportedClient(FakeImportedServer):
    """One that a connection was opened to."""

    opened: list[str]

    async def close(self) -> None:
        self.opened.append("closed")


async def asked(
    reader: FakeReader, name: str, opened: list[str] | None = None, **answers: object
) -> ProbeResult:
    client = FakeImportedClient(**server(**answers).answers)
    client.opened = [] if opened is None else opened

    def open_tenant(access: Access) -> ApiClient:
        client.opened.append(access.server)
        return client  # type: ignore[return-value]

    probe = SourceProbe(ImportRef(name), "tenants", "acme")
    return await ask_source(reader, SUPER_SERVER, open_tenant, probe, 7.0)


@pytest.mark.parametrize(
    ("source", "more", "place"),
    [
        (others.KAMAJI, [others.KAMAJI_KUBELET_CLIENT, others.KAMAJI_CA], others.KAMAJI_KUBELET_CLIENT.name),
        (others.VCLUSTER, [others.VCLUSTER_CERTS], others.VCLUSTER_CERTS.name),
    ],
)
async def test_a_control_plane_is_found_with_its_certificate(
    source: OthersSecret, more: list[OthersSecret], place: str
) -> None:
    opened: list[str] = []
    found = await asked(FakeReader(source, *more), source.name, opened)
    assert found.is_ok
    assert found.facts["certificatePlace"] == f"Secret tenants/{place}"
    assert found.facts["certificate"] == others.KUBELET_CLIENT.cert_pem.decode()
    assert (found.facts["server"], found.facts["version"]) == (opened[0], "v1.34.4")
    assert opened[1:] == ["closed"]
    assert not any("PRIVATE" in value for value in found.facts.values())


@pytest.mark.parametrize("source", [others.K3K, others.CLUSTER_API, others.K3S])
async def test_what_no_secret_has_is_asked_for(source: OthersSecret) -> None:
    found = await asked(FakeReader(source), source.name)
    assert found.is_ok
    assert "certificate" not in found.facts
    assert "kubectl -n tenants create secret generic acme-kubelet-client" in found.facts["kubeletClient"]


@pytest.mark.parametrize(
    ("secret", "answers", "reason"),
    [
        (OthersSecret("a", {"value": others.kubeconfig(SUPER_SERVER)}), {}, "LeadsToSuperCluster"),
        (others.K3S, {"kube_system": {"metadata": {"uid": "super-uid"}}}, "LeadsToSuperCluster"),
        (others.K3S, {"selfsubjectaccessreviews": {}}, "ImportLacksRights"),
        (OthersSecret("a", {"value": "nonsense"}), {}, "KubeconfigRefused"),
        (OthersSecret("a", {"token": ""}), {}, "SecretKeyMissing"),
    ],
)
async def test_what_cannot_be_adopted_has_a_reason(
    secret: OthersSecret, answers: dict[str, object], reason: str
) -> None:
    found = await asked(FakeReader(secret), secret.name, None, **answers)
    assert (found.is_ok, found.at, dict(found.facts)) == (False, 7.0, {"reason": reason})
    assert "spec.import." in found.detail


@pytest.mark.parametrize(("name", "reason"), [("gone", "SecretMissing"), ("../x", "SecretNameRefused")])
async def test_nothing_is_asked_without_a_secret(name: str, reason: str) -> None:
    reader, opened = FakeReader(), list[str]()
    found = await asked(reader, name, opened)
    assert (found.facts["reason"], opened) == (reason, [])
    assert [ref.name for ref in reader.read] == ([] if "/" in name else [name])


async def test_the_super_clusters_address_is_not_dialled() -> None:
    opened: list[str] = []
    secret = OthersSecret("a", {"value": others.kubeconfig(SUPER_SERVER)})
    await asked(FakeReader(secret), "a", opened)
    assert opened == []
