# SPDX-License-Identifier: Apache-2.0
"""packaging/operator/policy.yaml on a real apiserver: what vc-operator may write, who may make what.

The users here may do everything by RBAC, so that what is refused is refused by the policies.
"""

from __future__ import annotations

import copy
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from tests.k8s.ring import virtual_clusters
from tests.k8s.ring.api import JsonObject, KubernetesApi
from tests.k8s.ring.operator_policies import (
    HOME,
    IDENTITY,
    OPERATOR,
    OPERATOR_OF_MACHINE,
    OTHER_ROOT,
    OTHER_UID,
    OWN,
    ROOT,
    SYSTEM,
    UID,
    installed,
    new_config_map,
    new_namespace,
    new_secret,
    ranged,
    ranges,
    refusal_of,
)
from tests.k8s.ring.processes import RingError, wait_for
from tests.k8s.ring.tenants import RingTenant
from tests.k8s.ring.virtual_clusters import manifest


@pytest.fixture(scope="module")
def admin(acme: RingTenant) -> Iterator[KubernetesApi]:
    """An administrator of an API server with the policies."""
    with installed(acme.api):
        yield acme.api


@pytest.fixture(params=[OPERATOR, OPERATOR_OF_MACHINE], ids=["account", "certificate"])
def operator(request: pytest.FixtureRequest, admin: KubernetesApi) -> KubernetesApi:
    return replace(admin, headers=request.param)


@pytest.fixture
def maker(admin: KubernetesApi) -> Iterator[KubernetesApi]:
    """Somebody who may write objects in all namespaces, and namespaces."""
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    rules = [{"apiGroups": [""], "resources": ["namespaces", "secrets", "configmaps"], "verbs": ["*"]}]
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "rules": rules}
    admin.create(f"{rbac}/clusterroles", {**role, "metadata": {"name": "policy-maker"}}, may_exist=True)
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "policy-maker"}
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "policy-maker"}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "policy-maker"},
        "roleRef": ref,
        "subjects": [subject],
    }
    admin.create(f"{rbac}/clusterrolebindings", binding, may_exist=True)
    yield replace(admin, headers={"Impersonate-User": "policy-maker"})
    admin.delete(f"{rbac}/clusterrolebindings/policy-maker")
    admin.delete(f"{rbac}/clusterroles/policy-maker")


_MAY_NOT_HERE = "vc-operator may only write in root namespaces"
_MAY_NOT_THIS = "vc-operator may only write objects with its label"
_MAY_NOT_THEIRS = "vc-operator may only change its own Secrets"
_WRITES = [
    (ROOT, new_config_map("a", OWN), ""),
    (ROOT, new_secret("a", OWN), ""),
    (ROOT, new_config_map("a", {}), _MAY_NOT_THIS),
    (ROOT, new_config_map("a", {**OWN, "vcnode.io/managed-by": "me"}), _MAY_NOT_THIS),
    (ROOT, new_config_map("a", {**OWN, "tenancy.x-k8s.io/vcuid": OTHER_UID}), _MAY_NOT_THIS),
    (OTHER_ROOT, new_config_map("a", OWN), _MAY_NOT_THIS),
    (HOME, new_secret("acme-kubeconfig", OWN), ""),
    (HOME, new_secret("acme-kubeconfig", {}), _MAY_NOT_THIS),
    (HOME, new_secret("acme", OWN), _MAY_NOT_HERE),
    (HOME, new_config_map("acme-kubeconfig", OWN), _MAY_NOT_HERE),
    ("kube-system", new_secret("a", OWN), _MAY_NOT_HERE),
    ("policy-tenants", new_config_map("a", OWN), _MAY_NOT_HERE),
    (SYSTEM, new_config_map("vc-operator", OWN), _MAY_NOT_HERE),
]


@pytest.mark.parametrize(("namespace", "value", "refusal"), _WRITES)
def test_where_the_operator_makes_objects(
    operator: KubernetesApi, namespace: str, value: JsonObject, refusal: str
) -> None:
    path = f"/api/v1/namespaces/{namespace}/{value['kind'].lower()}s?dryRun=All"
    found = refusal_of(operator, path, value)
    assert refusal in found if refusal else found == "", found


@pytest.mark.parametrize(
    ("path", "kind", "spec"),
    [
        (
            "/apis/apps/v1/{}/deployments",
            "Deployment",
            {
                "selector": {"matchLabels": {"a": "b"}},
                "template": {
                    "metadata": {"labels": {"a": "b"}},
                    "spec": {"containers": [{"name": "a", "image": "a"}]},
                },
            },
        ),
        ("/api/v1/{}/services", "Service", {"ports": [{"port": 6443}]}),
        ("/apis/networking.k8s.io/v1/{}/networkpolicies", "NetworkPolicy", {"podSelector": {}}),
        ("/apis/policy/v1/{}/poddisruptionbudgets", "PodDisruptionBudget", {"maxUnavailable": 1}),
        (
            "/apis/batch/v1/{}/jobs",
            "Job",
            {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "a"}]}}},
        ),
    ],
)
def test_kinds_of_control_planes(operator: KubernetesApi, path: str, kind: str, spec: Any) -> None:
    group, version = ["", "v1"] if path.startswith("/api/") else path.split("/")[2:4]
    value = {
        "apiVersion": f"{group}/{version}" if group else version,
        "kind": kind,
        "metadata": {"name": "a", "labels": OWN},
        "spec": spec,
    }
    for namespace, refusal in ((ROOT, ""), (HOME, _MAY_NOT_HERE), ("kube-system", _MAY_NOT_HERE)):
        found = refusal_of(operator, path.format(f"namespaces/{namespace}") + "?dryRun=All", value)
        assert refusal in found if refusal else found == "", found


@pytest.mark.parametrize(
    ("namespace", "name", "labels", "change", "refusal"),
    [
        # Of a person, or without its label: in a root namespace it becomes the operator's again.
        (ROOT, "theirs", {}, {"labels": OWN}, ""),
        (ROOT, "theirs", {}, {"annotations": {"a": "b"}}, _MAY_NOT_THIS),
        (HOME, "acme-kubeconfig", OWN, {"annotations": {"a": "b"}}, ""),
        (HOME, "acme-kubeconfig", {}, {"labels": OWN}, _MAY_NOT_THEIRS),
        (HOME, "acme-kubeconfig", OWN, {"labels": {"tenancy.x-k8s.io/vcuid": OTHER_UID}}, _MAY_NOT_THEIRS),
        (HOME, "acme-kubeconfig", OWN, {"labels": {"vcnode.io/managed-by": None}}, _MAY_NOT_THIS),
    ],
)
def test_what_the_operator_changes(
    operator: KubernetesApi,
    admin: KubernetesApi,
    namespace: str,
    name: str,
    labels: JsonObject,
    change: JsonObject,
    refusal: str,
) -> None:
    path = f"/api/v1/namespaces/{namespace}/secrets"
    admin.create(path, new_secret(name, labels))
    try:
        if refusal:
            with pytest.raises(RingError, match=refusal):
                operator.patch(f"{path}/{name}", {"metadata": change})
        else:
            operator.patch(f"{path}/{name}", {"metadata": change})
    finally:
        admin.delete(f"{path}/{name}")


@pytest.mark.parametrize(
    ("namespace", "name", "labels", "refusal"),
    [
        (ROOT, "own", OWN, ""),
        (ROOT, "theirs", {}, _MAY_NOT_THIS),
        (HOME, "acme-kubeconfig", OWN, ""),
        (HOME, "acme-kubeconfig", {}, _MAY_NOT_THIS),
        (HOME, "other", OWN, _MAY_NOT_HERE),
    ],
)
def test_what_the_operator_deletes(
    operator: KubernetesApi, admin: KubernetesApi, namespace: str, name: str, labels: JsonObject, refusal: str
) -> None:
    path = f"/api/v1/namespaces/{namespace}/secrets"
    admin.create(path, new_secret(name, labels))
    try:
        if refusal:
            with pytest.raises(RingError, match=refusal):
                operator.delete(f"{path}/{name}")
        else:
            operator.delete(f"{path}/{name}")
    finally:
        admin.delete(f"{path}/{name}")


@pytest.mark.parametrize(
    ("labels", "annotations", "is_good"),
    [
        (OWN, IDENTITY, True),
        ({}, IDENTITY, False),
        (OWN, {}, False),
        ({**OWN, "tenancy.x-k8s.io/vcuid": OTHER_UID}, IDENTITY, False),
        (OWN, {**IDENTITY, "tenancy.x-k8s.io/vcrootns": "false"}, False),
        *((OWN, {key: value for key, value in IDENTITY.items() if key != left}, False) for left in IDENTITY),
    ],
)
def test_which_namespaces_the_operator_makes(
    operator: KubernetesApi, labels: JsonObject, annotations: JsonObject, is_good: bool
) -> None:
    made = new_namespace("policy-made", labels, annotations)
    found = refusal_of(operator, "/api/v1/namespaces?dryRun=All", made)
    assert found == "" if is_good else "vc-operator may only make root namespaces" in found


@pytest.mark.parametrize(
    ("namespace", "labels", "is_good"),
    [
        (HOME, {}, True),
        (HOME, {"tenancy.x-k8s.io/vcuid": UID}, True),
        (HOME, {**OWN, "vcnode.io/managed-by": "somebody"}, True),
        (HOME, OWN, False),
        (HOME, {"vcnode.io/managed-by": "vc-operator"}, False),
        ("policy-tenants", OWN, False),
        (OTHER_ROOT, OWN, False),
        (ROOT, {**OWN, "tenancy.x-k8s.io/vcuid": OTHER_UID}, False),
        # As the StatefulSet controller labels volumes.
        (ROOT, OWN, True),
    ],
)
def test_who_may_use_the_operators_label(
    maker: KubernetesApi, namespace: str, labels: JsonObject, is_good: bool
) -> None:
    home = f"/api/v1/namespaces/{namespace}"
    for path, value in (
        (f"{home}/configmaps?dryRun=All", new_config_map("a", labels)),
        (f"{home}/secrets?dryRun=All", new_secret("a-kubeconfig", labels)),
    ):
        assert bool(refusal_of(maker, path, value)) is not is_good


def test_nobody_else_makes_a_root_namespace(maker: KubernetesApi, admin: KubernetesApi) -> None:
    made = new_namespace("policy-made", OWN, IDENTITY)
    assert "is for vc-operator alone" in refusal_of(maker, "/api/v1/namespaces?dryRun=All", made)
    assert refusal_of(admin, "/api/v1/namespaces?dryRun=All", made) == ""
    assert (
        refusal_of(maker, "/api/v1/namespaces?dryRun=All", new_namespace("policy-made", {}, IDENTITY)) == ""
    )


def test_what_has_the_label_is_changed_by_others(maker: KubernetesApi, admin: KubernetesApi) -> None:
    """As controllers do; the label's UID stays."""
    path = f"/api/v1/namespaces/{HOME}/configmaps"
    admin.create(path, new_config_map("labelled", OWN))
    try:
        maker.patch(f"{path}/labelled", {"data": {"a": "b"}})
        with pytest.raises(RingError, match="is for vc-operator alone"):
            maker.patch(f"{path}/labelled", {"metadata": {"labels": {"tenancy.x-k8s.io/vcuid": OTHER_UID}}})
        maker.patch(f"{path}/labelled", {"metadata": {"labels": {"vcnode.io/managed-by": None}}})
        with pytest.raises(RingError, match="is for vc-operator alone"):
            maker.patch(f"{path}/labelled", {"metadata": {"labels": OWN}})
    finally:
        admin.delete(f"{path}/labelled")


def test_namespaces_of_others_stay_theirs(operator: KubernetesApi) -> None:
    root, system, home = (f"/api/v1/namespaces/{each}" for each in (ROOT, "kube-system", HOME))
    operator.patch(root, {"metadata": {"annotations": {"vcnode.io/service-cidrs": "10.32.0.0/24"}}})
    for key in ("tenancy.x-k8s.io/vcuid", "tenancy.x-k8s.io/vcname"):
        change = {"metadata": {"annotations": {key: "x"}, "labels": {"tenancy.x-k8s.io/vcuid": "x"}}}
        with pytest.raises(RingError, match=r"vc-operator may (not change whose|only make)"):
            operator.patch(root, change)
    for path in (system, home):
        with pytest.raises(RingError, match="vc-operator may only change root namespaces"):
            operator.patch(path, {"metadata": {"annotations": IDENTITY, "labels": OWN}})
        with pytest.raises(RingError, match=r"vc-operator may only change root namespaces|is forbidden"):
            operator.delete(path)


_OF_TENANT = {
    "tenancy.x-k8s.io/cluster": ROOT,
    "tenancy.x-k8s.io/uid": "33333333-3333-3333-3333-333333333333",
    "tenancy.x-k8s.io/vcuid": UID,
}


@pytest.mark.parametrize(
    ("annotations", "is_deleted"),
    [
        (_OF_TENANT, True),
        (IDENTITY, True),
        *(({key: value for key, value in _OF_TENANT.items() if key != left}, False) for left in _OF_TENANT),
        ({**_OF_TENANT, "tenancy.x-k8s.io/vcrootns": "false"}, False),
    ],
)
def test_which_namespaces_the_operator_deletes(
    operator: KubernetesApi, admin: KubernetesApi, annotations: JsonObject, is_deleted: bool
) -> None:
    """Those of a tenant that ends go as a whole. What is in one, it can neither make nor change."""
    # One that is deleted stays here: its end is a controller's work, and none runs.
    name = f"policy-{uuid.uuid4().hex[:8]}"
    path = f"/api/v1/namespaces/{name}"
    admin.create("/api/v1/namespaces", new_namespace(name, {}, annotations))
    try:
        if is_deleted:
            operator.delete(path)
        else:
            with pytest.raises(RingError, match="vc-operator may only change root namespaces, and delete"):
                operator.delete(path)
        assert ("deletionTimestamp" in admin.get(path)["metadata"]) == is_deleted
    finally:
        admin.delete(path)


def test_what_the_operator_changes_of_a_virtual_cluster(
    operator: KubernetesApi, admin: KubernetesApi
) -> None:
    value = manifest("acme")
    value["metadata"] |= {
        "annotations": {"a": "b", "vcnode.io/sleep-requested-at": "x"},
        "labels": {"a": "b"},
    }
    admin.create(virtual_clusters.path(HOME), value)
    one = virtual_clusters.path(HOME, "acme")
    try:
        operator.patch(f"{one}/status", {"status": {"phase": "Running", "clusterNamespace": "k"}})
        operator.patch(one, {"metadata": {"finalizers": ["vcnode.io/vc-operator"]}})
        operator.patch(one, {"metadata": {"annotations": {"vcnode.io/sleep-requested-at": None}}})
        operator.patch(one, {"metadata": {"finalizers": None, "annotations": {"vcnode.io/b": "c"}}})
        for change in (
            {"spec": {"class": "big"}},
            {"metadata": {"labels": {"a": "c"}}},
            {"metadata": {"labels": {"a": None}}},
            {"metadata": {"annotations": {"a": "c"}}},
            {"metadata": {"annotations": {"a": None}}},
            {"metadata": {"annotations": {"tenancy.x-k8s.io/admin-kubeconfig": "a"}}},
        ):
            with pytest.raises(RingError, match="vc-operator may only set the status"):
                operator.patch(one, change)
        with pytest.raises(RingError, match="vc-operator may only patch VirtualClusters"):
            operator.delete(one)
        with pytest.raises(RingError, match="vc-operator may only patch VirtualClusters"):
            operator.create(virtual_clusters.path(HOME), manifest("other"))
    finally:
        admin.delete(one)


@pytest.mark.parametrize(
    ("namespace", "name", "spec", "refusal"),
    [
        (HOME, "n" * (48 - len(HOME)), None, ""),
        (HOME, "n" * (49 - len(HOME)), None, "metadata.name: with its namespace it has 49 characters"),
        (ROOT, "a", None, "metadata.namespace: it is a namespace of a tenant"),
        ("policy-tenants", "a", None, "metadata.namespace: it is a namespace of a tenant"),
        (HOME, "a", ranged(""), ""),
        (HOME, "a", ranged("10.32.0.0/24,fd00:32::/112"), ""),
        (HOME, "a", ranged("10.32.0.1/24"), "spec.serviceCidr: it is not the first address"),
        (HOME, "a", ranged("10.32.0.0/24,fd00:32::1/112"), "spec.serviceCidr: it is not the first address"),
        (
            HOME,
            "a",
            ranged("10.96.0.0/28"),
            "overlaps 10.96.0.0/16, the range of the super cluster's Services",
        ),
        (
            HOME,
            "a",
            ranged("10.240.0.0/12"),
            "overlaps 10.244.0.0/16, the range of the super cluster's pods",
        ),
        (HOME, "a", ranged("10.32.0.0/24,fd00:10:96::/112"), "overlaps fd00:10:96::/112, the range of"),
        (HOME, "a", {**ranged("10.96.0.0/28"), "import": {"secretName": "a"}}, ""),
    ],
)
def test_which_virtual_clusters_may_be_made(
    admin: KubernetesApi, namespace: str, name: str, spec: JsonObject | None, refusal: str
) -> None:
    found = refusal_of(admin, virtual_clusters.path(namespace) + "?dryRun=All", manifest(name, spec))
    assert refusal in found if refusal else found == "", found


def test_without_the_ranges_none_is_refused_by_them(admin: KubernetesApi) -> None:
    """vc-operator then says so by a condition; names are counted all the same."""
    path = f"/api/v1/namespaces/{SYSTEM}/configmaps"
    homes = virtual_clusters.path(HOME) + "?dryRun=All"
    admin.delete(f"{path}/vc-operator-ranges")
    try:
        wait_for(
            "the ranges are gone",
            lambda: refusal_of(admin, homes, manifest("a", ranged("10.96.0.0/28"))) == "",
            timeout_s=30,
        )
        assert "metadata.name" in refusal_of(admin, homes, manifest("n" * 47))
    finally:
        admin.create(path, ranges())


def test_who_may_import_a_kubeconfig(admin: KubernetesApi) -> None:
    """Whoever may read its Secret: vc-operator would use it for anybody otherwise."""
    rules: list[JsonObject] = [
        {"apiGroups": ["tenancy.x-k8s.io"], "resources": ["virtualclusters"], "verbs": ["create", "patch"]},
        {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["own-kubeconfig"], "verbs": ["get"]},
    ]
    homes, one = virtual_clusters.path(HOME), virtual_clusters.path(HOME, "imported")
    own = {"clusterVersionName": "cv", "import": {"secretName": "own-kubeconfig"}}
    another = {"spec": {"import": {"secretName": "prod-kubeconfig"}}}
    with _in_role(admin, "policy-importer", rules) as author:
        try:
            wait_for(
                "the right holds",
                lambda: (
                    not refusal_of(
                        author,
                        f"{homes}?dryRun=All",
                        manifest("imported", own),
                    )
                ),
                timeout_s=30,
            )
            refused = refusal_of(author, homes, manifest("imported", own | another["spec"]))
            assert "spec.import: you may not get the Secret that it names" in refused
            author.create(homes, manifest("imported", own))
            with pytest.raises(RingError, match="you may not get the Secret"):
                author.patch(one, another)
            # Somebody else's choice stays when the rest is written.
            admin.patch(one, another)
            author.patch(one, {"metadata": {"annotations": {"a": "b"}}})
            # Nor by an annotation, where no address is judged.
            for key in ("tenancy.x-k8s.io/admin-kubeconfig", "tenancy.x-k8s.io/secret.admin-kubeconfig"):
                for value in ("YQ==", "YWI="):
                    with pytest.raises(RingError, match="ask a user who may create Secrets"):
                        author.patch(one, {"metadata": {"annotations": {key: value}}})
                    admin.patch(one, {"metadata": {"annotations": {key: value}}})
                    author.patch(one, {"metadata": {"annotations": {"a": value}}})
                author.patch(one, {"metadata": {"annotations": {key: None}}})
        finally:
            admin.delete(one)


@pytest.mark.parametrize(
    ("granted", "allowed"),
    [
        ([], []),
        ([{"verbs": ["restore"], "resourceNames": [OTHER_UID]}], [OTHER_UID]),
        ([{"verbs": ["restore"]}], [UID, OTHER_UID, ""]),
    ],
    ids=["nothing", "one", "all"],
)
def test_who_may_begin_with_a_backup(
    admin: KubernetesApi, granted: list[JsonObject], allowed: list[str]
) -> None:
    """Whoever has the verb `restore`: vc-operator would give the data of any tenant of the namespace."""
    name = f"policy-backups-{uuid.uuid4().hex[:8]}"
    of = {"apiGroups": ["tenancy.x-k8s.io"], "resources": ["virtualclusters"]}
    homes, one = virtual_clusters.path(HOME), virtual_clusters.path(HOME, "restored")
    rules = [{**of, "verbs": ["create", "patch"]}, *({**of, **each} for each in granted)]
    with _in_role(admin, name, rules) as author:
        wait_for(
            "the right holds",
            lambda: not refusal_of(author, f"{homes}?dryRun=All", manifest("restored")),
            timeout_s=30,
        )
        for uid in (UID, OTHER_UID, ""):
            spec = {
                "clusterVersionName": "cv",
                "restoreFrom": {"backup": "b"} | ({"uid": uid} if uid else {}),
            }
            found = refusal_of(author, f"{homes}?dryRun=All", manifest("restored", spec))
            assert (found == "") is (uid in allowed), found
            assert uid in allowed or "ask a user with the verb restore on virtualclusters" in found
            admin.create(homes, manifest("restored", spec))
            try:
                # Somebody else's choice stays when the rest is written, and may be taken away.
                author.patch(one, {"metadata": {"annotations": {"a": "b"}}})
                author.patch(one, {"spec": {"restoreFrom": None}})
            finally:
                admin.delete(one)


def test_who_may_release_held_deletions(admin: KubernetesApi) -> None:
    """Whoever has the verb `release`, beside the right to write the object."""
    name, rules = (
        "policy-tenant-owner",
        [
            {
                "apiGroups": ["tenancy.x-k8s.io"],
                "resources": ["virtualclusters"],
                "verbs": ["get", "create", "patch"],
            }
        ],
    )
    roles = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{HOME}"
    api = "rbac.authorization.k8s.io"
    role: JsonObject = {"apiVersion": f"{api}/v1", "kind": "Role", "metadata": {"name": name}, "rules": rules}
    admin.create(f"{roles}/roles", role)
    admin.create(
        f"{roles}/rolebindings",
        {
            "apiVersion": f"{api}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": api, "kind": "Role", "name": name},
            "subjects": [{"apiGroup": api, "kind": "User", "name": name}],
        },
    )
    owner = replace(admin, headers={"Impersonate-User": name})
    one, release = virtual_clusters.path(HOME, "held"), "vcnode.io/release-held"
    asked = {"metadata": {"annotations": {release: "token"}}}
    try:
        owner.create(virtual_clusters.path(HOME), manifest("held"))
        owner.patch(
            one, {"metadata": {"annotations": {"vcnode.io/wake-requested-at": "2026-01-02T03:04:05Z"}}}
        )
        with pytest.raises(RingError, match="ask a user with the verb release"):
            owner.patch(one, asked)
        admin.patch(one, asked)
        # What somebody else has released may stay, and be taken away.
        owner.patch(one, {"metadata": {"annotations": {"a": "b"}}})
        owner.patch(one, {"metadata": {"annotations": {release: None}}})
        allowed = copy.deepcopy(role)
        allowed["rules"][0]["verbs"].append("release")
        admin.put(f"{roles}/roles/{name}", allowed)
        wait_for("the right holds", lambda: _is_patched(owner, one, asked), timeout_s=30)
    finally:
        for kind in ("rolebindings", "roles"):
            admin.delete(f"{roles}/{kind}/{name}")
        admin.delete(one)


@contextmanager
def _in_role(admin: KubernetesApi, name: str, rules: list[JsonObject]) -> Iterator[KubernetesApi]:
    """A user who may do this in the namespace of VirtualClusters, and nothing else."""
    roles = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{HOME}"
    api = "rbac.authorization.k8s.io"
    role: JsonObject = {"apiVersion": f"{api}/v1", "kind": "Role", "metadata": {"name": name}, "rules": rules}
    binding: JsonObject = {
        "apiVersion": f"{api}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": api, "kind": "Role", "name": name},
        "subjects": [{"apiGroup": api, "kind": "User", "name": name}],
    }
    admin.create(f"{roles}/roles", role)
    try:
        admin.create(f"{roles}/rolebindings", binding)
        yield replace(admin, headers={"Impersonate-User": name})
    finally:
        for kind in ("rolebindings", "roles"):
            admin.delete(f"{roles}/{kind}/{name}")


def _is_patched(api: KubernetesApi, path: str, change: JsonObject) -> bool:
    try:
        api.patch(path, change)
    except RingError:
        return False
    return True
