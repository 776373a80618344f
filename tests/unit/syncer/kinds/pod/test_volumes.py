# SPDX-License-Identifier: Apache-2.0
"""Volumes of super pods: tokens, the tenant's CA, and what downward API volumes read."""

from dataclasses import replace

import pytest

from syncer.core.objects import Object
from syncer.core.plan import Bind, Create, IssueTokens, Patch, Refusal, TokenRequest, Wait
from syncer.kinds.pod.volumes import token_secret_name
from tests.unit.syncer.kinds.pod.pods import (
    OPEN_POLICY,
    SUPER_NAMESPACE,
    UID,
    bound,
    created,
    deleting,
    plan,
    pod,
    super_pod,
    token_secret,
    view,
)

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


VAULT = {"serviceAccountToken": {"path": "vault", "audience": "vault", "expirationSeconds": 7200}}
ROBOT = {
    "serviceAccountName": "robot",
    "volumes": [api_access(expirationSeconds=3607), {"name": "t", "projected": {"sources": [VAULT]}}],
}
TOKENS = IssueTokens(
    "plain",
    "p",
    UID,
    "robot",
    SECRET,
    (TokenRequest("token-0", "", 3607), TokenRequest("token-1", "vault", 7200)),
)
SECRET_OF_TOKENS = token_secret(TOKENS)
FOREIGN_SECRET = {"kind": "Secret", "metadata": {"name": SECRET, "namespace": SUPER_NAMESPACE}}


def test_tokens_are_issued_right_after_the_binding() -> None:
    """An API server puts the node into the token of a bound pod only. The kubelet waits for the Secret."""
    tenant = pod(ROBOT)
    (create,) = plan(tenant).actions
    assert isinstance(create, Create)
    found = super_pod(tenant)
    assert plan(tenant, found).actions == ()
    found = super_pod(tenant, node="n1")
    found["metadata"]["annotations"]["transparent.example.com/x"] = "y"
    binding, tokens, upward = plan(tenant, found).actions
    assert binding == Bind("plain", "p", UID, "n1")
    assert tokens == TOKENS
    assert isinstance(upward, Patch)


@pytest.mark.parametrize(
    ("found", "secrets", "expected"),
    [
        pytest.param(super_pod(pod(ROBOT), node="n1"), (), [TOKENS], id="lost between binding and Secret"),
        pytest.param(super_pod(pod(ROBOT), node="n1"), (SECRET_OF_TOKENS,), [], id="there"),
        pytest.param(super_pod(pod(ROBOT), node="n1"), (FOREIGN_SECRET,), [TOKENS], id="another's"),
        pytest.param(deleting(super_pod(pod(ROBOT), node="n1"), 30), (), [], id="being deleted"),
        pytest.param(super_pod(pod(), node="n1"), (), [], id="of upstream, with other Secrets"),
    ],
)
def test_a_bound_pod_has_its_tokens_whatever_was_lost(
    found: Object, secrets: tuple[Object, ...], expected: list[IssueTokens]
) -> None:
    actions = plan(bound(pod(ROBOT)), found, view(*secrets)).actions
    assert [each for each in actions if isinstance(each, IssueTokens)] == expected


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_needs_no_tokens(phase: str) -> None:
    found = super_pod(pod(ROBOT), node="n1")
    found["status"] = {"phase": phase}
    actions = plan(bound(pod(ROBOT)), found).actions
    assert [each for each in actions if isinstance(each, IssueTokens)] == []


def test_a_pod_made_with_a_node_has_tokens_at_once() -> None:
    """Its tenant's API server knows the node before there is a super pod."""
    policy = replace(OPEN_POLICY, pods=replace(OPEN_POLICY.pods, allow_node_name=True))
    tokens, create = plan(pod({**ROBOT, "nodeName": "n1"}), None, view(policy=policy)).actions
    assert tokens == TOKENS
    assert isinstance(create, Create)


def test_tokens_are_mounted_from_a_secret() -> None:
    assert created(pod(ROBOT))["spec"]["volumes"] == [
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
