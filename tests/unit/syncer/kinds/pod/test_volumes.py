# SPDX-License-Identifier: Apache-2.0
"""Volumes of super pods: tokens, the tenant's CA, and what downward API volumes read."""

import pytest

from syncer.core.objects import Object
from syncer.core.plan import Create, IssueTokens, Refusal, TokenRequest, Wait
from syncer.kinds.pod.volumes import token_secret_name
from tests.unit.syncer.kinds.pod.pods import UID, created, plan, pod, view

SECRET = "p-token-923d7897ef"
ROOT_CA_ITEMS = [{"key": "ca.crt", "path": "ca.crt"}]


def api_access(**token: object) -> Object:
    return {
        "name": "kube-api-access-x",
        "projected": {
            "defaultMode": 420,
            "sources": [
                {"serviceAccountToken": {"path": "token", **token}},
                {"configMap": {"name": "kube-root-ca.crt", "items": ROOT_CA_ITEMS}},
                {"downwardAPI": {"items": [field("namespace", "metadata.namespace")]}},
            ],
        },
    }


def field(path: str, reference: str) -> Object:
    return {"path": path, "fieldRef": {"apiVersion": "v1", "fieldPath": reference}}


def test_tokens_are_issued_before_the_pod_is_made() -> None:
    vault = {"serviceAccountToken": {"path": "vault", "audience": "vault", "expirationSeconds": 7200}}
    spec = {
        "serviceAccountName": "robot",
        "volumes": [api_access(expirationSeconds=3607), {"name": "t", "projected": {"sources": [vault]}}],
    }
    tokens, create = plan(pod(spec)).actions
    assert tokens == IssueTokens(
        "plain",
        "p",
        UID,
        "robot",
        SECRET,
        (TokenRequest("token-0", "", 3607), TokenRequest("token-1", "vault", 7200)),
    )
    assert isinstance(create, Create)
    assert create.body["spec"]["volumes"] == [
        {
            "name": "kube-api-access-x",
            "projected": {
                "defaultMode": 420,
                "sources": [
                    {"secret": {"name": SECRET, "items": [{"key": "token-0", "path": "token"}]}},
                    {"configMap": {"name": "tenant-kube-root-ca.crt", "items": ROOT_CA_ITEMS}},
                    {
                        "downwardAPI": {
                            "items": [
                                field("namespace", "metadata.annotations['tenancy.x-k8s.io/namespace']")
                            ]
                        }
                    },
                ],
            },
        },
        {
            "name": "t",
            "projected": {
                "sources": [{"secret": {"name": SECRET, "items": [{"key": "token-1", "path": "vault"}]}}]
            },
        },
    ]


def test_tokens_of_pods_with_a_group_are_private() -> None:
    spec = {"volumes": [api_access()], "securityContext": {"fsGroup": 2000}}
    sources = created(pod(spec))["spec"]["volumes"][0]["projected"]["sources"]
    assert sources[0] == {
        "secret": {"name": SECRET, "items": [{"key": "token-0", "path": "token", "mode": 0o600}]}
    }


def test_a_volume_called_api_access_need_not_be_projected() -> None:
    """Upstream's syncer crashed on it, for all tenants."""
    volumes = [{"name": "kube-api-access-x", "emptyDir": {}}, {"name": "q", "projected": {}}]
    assert plan(pod({"volumes": volumes})).actions[0].__class__ is Create
    assert created(pod({"volumes": volumes}))["spec"]["volumes"] == volumes


@pytest.mark.parametrize(
    ("name", "expected"),
    [("p", SECRET), ("a" * 199 + "." + "b" * 53, "a" * 199 + "-token-923d7897ef")],
)
def test_the_secret_of_tokens_has_a_valid_name(name: str, expected: str) -> None:
    assert token_secret_name(pod(name=name)) == expected
    assert token_secret_name(pod(name=name, uid="another")) != expected


def test_certificates_of_the_super_cluster_are_refused() -> None:
    source = {"podCertificate": {"signerName": "kubernetes.io/x", "keyType": "ED25519"}}
    found = plan(pod({"volumes": [{"name": "c", "projected": {"sources": [source]}}]}))
    assert found.actions == ()
    assert found.refusals == (
        Refusal(
            "spec.volumes[0].projected.sources[0].podCertificate",
            "certificates for pods are issued by the super cluster and are not available",
        ),
    )


def test_the_root_ca_volume_is_the_tenants() -> None:
    volumes = [
        {"name": "a", "configMap": {"name": "kube-root-ca.crt", "defaultMode": 256}},
        {"name": "b", "configMap": {"name": "other"}},
    ]
    assert created(pod({"volumes": volumes}))["spec"]["volumes"] == [
        {"name": "a", "configMap": {"name": "tenant-kube-root-ca.crt", "defaultMode": 256}},
        {"name": "b", "configMap": {"name": "other"}},
    ]


def test_an_ephemeral_volume_is_the_claim_that_the_tenant_makes() -> None:
    template = {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}}
    assert created(pod({"volumes": [{"name": "scratch", "ephemeral": template}]}))["spec"]["volumes"] == [
        {"name": "scratch", "persistentVolumeClaim": {"claimName": "p-scratch"}}
    ]


def test_a_secret_that_is_missing_is_waited_for() -> None:
    volumes = [{"name": "s", "secret": {"secretName": "nowhere"}}]
    found = plan(pod({"volumes": volumes}))
    assert (found.wait, found.actions) == (
        Wait("FailedCreate", 'Error creating: Secret "nowhere" not found'),
        (),
    )
    secret = {"kind": "Secret", "metadata": {"namespace": "plain", "name": "nowhere"}}
    seen = view(tenant_objects=(secret,))
    assert created(pod({"volumes": volumes}), seen)["spec"]["volumes"] == volumes
    optional = [{"name": "s", "secret": {"secretName": "nowhere", "optional": True}}]
    assert created(pod({"volumes": optional}))["spec"]["volumes"] == optional


LABELS = {"app": "a", "app.kubernetes.io/name": "n", "vcnode.io/x": "forged"}
ANNOTATIONS = {"plain": 'a "b"\n', "kubernetes.io/x": "k", "tenancy.x-k8s.io/cluster": "forged"}


@pytest.mark.parametrize(
    ("path", "expected", "annotations"),
    [
        ("metadata.name", "metadata.name", {}),
        ("metadata.namespace", "metadata.annotations['tenancy.x-k8s.io/namespace']", {}),
        ("metadata.uid", "metadata.annotations['tenancy.x-k8s.io/uid']", {}),
        ("metadata.labels['app']", "metadata.labels['app']", {}),
        ("metadata.annotations['plain']", "metadata.annotations['plain']", {}),
        (
            "metadata.labels['app.kubernetes.io/name']",
            "metadata.labels['tenant-label.vcnode.io/app.kubernetes.io__name']",
            {},
        ),
        (
            "metadata.labels['vcnode.io/x']",
            "metadata.annotations['tenant-metadata.vcnode.io/labels.vcnode.io__x']",
            {"tenant-metadata.vcnode.io/labels.vcnode.io__x": "forged"},
        ),
        (
            "metadata.annotations['kubernetes.io/x']",
            "metadata.annotations['tenant-metadata.vcnode.io/annotations.kubernetes.io__x']",
            {"tenant-metadata.vcnode.io/annotations.kubernetes.io__x": "k"},
        ),
        (
            "metadata.annotations['tenancy.x-k8s.io/vcname']",
            "metadata.annotations['tenant-metadata.vcnode.io/annotations.tenancy.x-k8s.io__vcname']",
            {},
        ),
        (
            "metadata.labels",
            "metadata.annotations['vcnode.io/tenant-labels']",
            {"vcnode.io/tenant-labels": 'app="a"\napp.kubernetes.io/name="n"\nvcnode.io/x="forged"'},
        ),
        (
            "metadata.annotations",
            "metadata.annotations['vcnode.io/tenant-annotations']",
            {
                "vcnode.io/tenant-annotations": 'kubernetes.io/x="k"\nplain="a \\"b\\"\\n"\n'
                'tenancy.x-k8s.io/cluster="forged"'
            },
        ),
    ],
)
@pytest.mark.parametrize("is_projected", [False, True])
def test_downward_volumes(path: str, expected: str, annotations: dict[str, str], is_projected: bool) -> None:
    downward: Object = {"downwardAPI": {"items": [field("f", path), {"path": "r", "resourceFieldRef": {}}]}}
    volume = {"projected": {"sources": [downward]}} if is_projected else downward
    tenant = pod({"volumes": [{"name": "d", **volume}]}, labels=LABELS, annotations=ANNOTATIONS)
    found = created(tenant)
    (made,) = found["spec"]["volumes"]
    source = made["projected"]["sources"][0] if is_projected else made
    assert source["downwardAPI"]["items"] == [field("f", expected), {"path": "r", "resourceFieldRef": {}}]
    own = {
        key: value
        for key, value in found["metadata"]["annotations"].items()
        if key.startswith(("vcnode.io/tenant-", "tenant-metadata"))
    }
    assert own == annotations
