# SPDX-License-Identifier: Apache-2.0
"""Which Secrets can be adopted, and why others cannot: each refusal has the field and the remedy."""

from collections.abc import Mapping

import msgspec
import pytest

from tenant_operator.model.problem import SpecProblem
from tenant_operator.model.virtual_cluster import ImportRef
from tenant_operator.provisioners.imported.shapes import SourceShape
from tenant_operator.provisioners.imported.source import (
    AdoptedSource,
    ImportProbe,
    KubeconfigFacts,
    SourceChoice,
    SourceSecret,
    SuperClusterFacts,
    choose,
    judge,
)
from tests.unit.tenant_operator.provisioners.imported import secrets_of_others as others
from tests.unit.tenant_operator.provisioners.imported.secrets_of_others import OthersSecret

SUPER = SuperClusterFacts("https://10.0.0.1:6443", "super-uid")
READ = "admin.conf, super-admin.conf, config, kubeconfig.yaml, value, kubeconfig, k3s.yaml"
PROBE = ImportProbe("tenant-uid", "v1.34.4", is_administrator=True)


def chosen(secret: SourceSecret | None, name: str = "", key: str = "") -> SourceChoice | SpecProblem:
    return choose(ImportRef(name or (secret.name if secret else "x"), key), secret, "tenants")


@pytest.mark.parametrize(
    ("secret", "key", "expected"),
    [
        (others.KAMAJI, "", SourceChoice("acme-admin-kubeconfig", "admin.conf", SourceShape.KAMAJI, "acme")),
        (
            others.KAMAJI,
            "admin.svc",
            SourceChoice("acme-admin-kubeconfig", "admin.svc", SourceShape.KAMAJI, "acme"),
        ),
        (others.VCLUSTER, "", SourceChoice("vc-acme", "config", SourceShape.VCLUSTER, "acme")),
        (others.K3K, "", SourceChoice("k3k-acme-kubeconfig", "kubeconfig.yaml", SourceShape.K3K, "acme")),
        (others.CLUSTER_API, "", SourceChoice("acme-kubeconfig", "value", SourceShape.CLUSTER_API, "acme")),
        (others.K3S, "", SourceChoice("edge", "k3s.yaml", SourceShape.PLAIN, "edge")),
        # A name without the keys, and keys without the name.
        (
            OthersSecret("vc-acme", {"config": ""}),
            "",
            SourceChoice("vc-acme", "config", SourceShape.PLAIN, "vc-acme"),
        ),
        (OthersSecret("a", {"value": ""}), "", SourceChoice("a", "value", SourceShape.PLAIN, "a")),
        (OthersSecret("a", {"mine": ""}), "mine", SourceChoice("a", "mine", SourceShape.PLAIN, "a")),
        # Several that have one by their names: the order is fixed.
        (
            OthersSecret("a", {"value": "", "kubeconfig": ""}),
            "",
            SourceChoice("a", "kubeconfig", SourceShape.PLAIN, "a"),
        ),
    ],
)
def test_secrets_are_known_by_name_and_keys(secret: OthersSecret, key: str, expected: SourceChoice) -> None:
    assert chosen(secret.facts, key=key) == expected


def test_the_choice_has_a_text() -> None:
    found = [chosen(each.facts) for each in (others.KAMAJI, others.K3S)]
    assert [each.text for each in found] == [
        "key admin.conf of Secret acme-admin-kubeconfig, written by Kamaji for acme",
        "key k3s.yaml of Secret edge",
    ]


@pytest.mark.parametrize(
    ("secret", "name", "key", "field", "reason", "message", "remedy"),
    [
        (
            None, "other/secret", "", "spec.import.secretName", "SecretNameRefused",
            "'other/secret' is no name of a Secret",
            "name a Secret of namespace tenants: one of another namespace is not read",
        ),
        (
            None, "gone", "", "spec.import.secretName", "SecretMissing",
            "Secret tenants/gone does not exist",
            "create it, or copy it into this namespace where its writer has another one",
        ),
        (
            SourceSecret("b-kubeconfig", ("value",), {"vcnode.io/managed-by": "vc-operator"}), "", "",
            "spec.import.secretName", "SecretOfOperator",
            "Secret tenants/b-kubeconfig is of a control plane that vc-operator runs",
            "name a Secret that others wrote",
        ),
        (
            SourceSecret("a", ("token", "ca.crt")), "", "", "spec.import.key", "SecretKeyMissing",
            "Secret tenants/a has no key that has a kubeconfig by its name; it has ca.crt, token",
            f"name one of its keys; by themselves are read: {READ}",
        ),
        (
            SourceSecret("a", ()), "", "value", "spec.import.key", "SecretKeyMissing",
            "Secret tenants/a has no key value; it has none",
            f"name one of its keys; by themselves are read: {READ}",
        ),
    ],
)  # fmt: skip
def test_secrets_that_cannot_be_read_are_refused(
    secret: SourceSecret | None, name: str, key: str, field: str, reason: str, message: str, remedy: str
) -> None:
    assert chosen(secret, name, key) == SpecProblem(field, reason, message, remedy)


def test_many_keys_are_not_all_shown() -> None:
    found = chosen(SourceSecret("a", tuple(f"key{number:03}" for number in range(500))))
    assert isinstance(found, SpecProblem)
    assert found.message.endswith(
        "; it has key000, key001, key002, key003, key004, key005, key006, key007, key008, key009, …"
    )


PLAIN = SourceChoice("edge", "kubeconfig", SourceShape.PLAIN, "edge")
FACTS = KubeconfigFacts("d1", server="https://10.96.7.7:6443", has_credential=True, has_authority=True)


def judged(
    probe: ImportProbe | None = PROBE,
    choice: SourceChoice = PLAIN,
    changes: Mapping[str, object] | None = None,
) -> AdoptedSource | SpecProblem | None:
    return judge(choice, msgspec.structs.replace(FACTS, **(changes or {})), SUPER, probe)


def test_a_control_plane_is_adopted() -> None:
    assert judged() == AdoptedSource(PLAIN, "d1", "https://10.96.7.7:6443", "v1.34.4")


def test_nothing_is_adopted_before_the_server_was_asked() -> None:
    assert judged(None) is None


WRITE = "write a kubeconfig with certificate-authority-data and client-certificate-data or a token"
OWN = "name the kubeconfig of the tenant's own control plane"
WHERE = "key kubeconfig of Secret edge"


@pytest.mark.parametrize(
    ("changes", "reason", "message", "remedy"),
    [
        ({"refusal": "exec: no"}, "KubeconfigRefused", f"{WHERE}: exec: no", WRITE),
        (
            {"files": ("/root/x.pem",)}, "KubeconfigNamesFiles",
            f"{WHERE} names files, which no daemon has: /root/x.pem", WRITE,
        ),
        ({"has_authority": False}, "KubeconfigIncomplete", f"{WHERE} has no certificate authority", WRITE),
        ({"has_credential": False}, "KubeconfigIncomplete", f"{WHERE} has no credential", WRITE),
        *(
            (
                {"server": server}, "LeadsToSuperCluster",
                f"{WHERE} leads to the super cluster: its server {server} is the super cluster's", OWN,
            )
            for server in (
                "https://10.0.0.1:6443",
                "https://10.0.0.1:6443/",
                "https://10.0.0.1:6443/k8s/x",
                "https://[::ffff:10.0.0.1]:6443",
                "https://[::FFFF:A00:1]:6443",
            )
        ),
        *(
            (
                {"server": server}, "ServerIsLoopback",
                f"{WHERE} leads to {server}, which is each machine itself",
                "write a server that pods of the super cluster reach",
            )
            for server in (
                "https://127.0.0.1:6443",
                "https://127.255.255.254",
                "https://0.0.0.0:6443",
                "https://localhost:8443",
                "https://LocalHost.:8443",
                "https://a.localhost",
                "https://[::1]:6443",
                "https://[::]:6443",
                "https://[0:0:0:0:0:0:0:1]",
                "https://[::ffff:127.0.0.1]:6443",
                "https://[::ffff:0:0]",
            )
        ),
        *(
            (
                {"server": server}, "ServerAddressRefused",
                f"{WHERE} leads to {server}, which is the address of no single machine of a cluster",
                "write the DNS name or the unicast address of the API server",
            )
            for server in (
                "https://169.254.169.254",
                "https://[::ffff:169.254.169.254]",
                "https://[fe80::1%25eth0]:6443",
                "https://224.0.0.1",
                "https://[ff02::1]",
                "https://255.255.255.255",
                "https://[64:ff9b::7f00:1]",
            )
        ),
    ],
)  # fmt: skip
def test_kubeconfigs_that_cannot_be_used_are_refused(
    changes: dict[str, object], reason: str, message: str, remedy: str
) -> None:
    expected = SpecProblem("spec.import.secretName", reason, message, remedy)
    assert judged(changes=changes) == expected
    assert judged(None, changes=changes) == expected


@pytest.mark.parametrize(
    ("secret", "remedy"),
    [
        (
            others.VCLUSTER,
            "set exportKubeConfig.server of vcluster to https://acme.NAMESPACE.svc:443, which also has to be"
            " in controlPlane.proxy.extraSANs",
        ),
        (others.K3K, "expose the k3k cluster (spec.expose), and generate its kubeconfig again"),
    ],
)
def test_a_loopback_server_has_the_remedy_of_its_writer(secret: OthersSecret, remedy: str) -> None:
    choice = chosen(secret.facts)
    assert isinstance(choice, SourceChoice)
    found = judged(PROBE, choice, {"server": "https://localhost:8443"})
    assert isinstance(found, SpecProblem)
    assert (found.reason, found.remedy) == ("ServerIsLoopback", remedy)


@pytest.mark.parametrize(
    ("probe", "reason", "message"),
    [
        (
            ImportProbe("super-uid", "v1.34.4", is_administrator=True), "LeadsToSuperCluster",
            f"{WHERE} leads to the super cluster: its Namespace kube-system is the super cluster's",
        ),
        (
            ImportProbe(failure="no answer in 10 s"), "ImportNotReachable",
            f"{WHERE}: https://10.96.7.7:6443: no answer in 10 s",
        ),
        (
            ImportProbe("", "v1.34.4"), "ImportLacksRights",
            f"{WHERE}: its user may not do everything, and vc-syncer's rights cannot be granted by it",
        ),
    ],
)  # fmt: skip
def test_what_the_server_answers_is_judged(probe: ImportProbe, reason: str, message: str) -> None:
    found = judged(probe)
    assert isinstance(found, SpecProblem)
    assert (found.field, found.reason, found.message) == ("spec.import.secretName", reason, message)
    assert found.remedy
