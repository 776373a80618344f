# SPDX-License-Identifier: Apache-2.0
"""Rights that each tenant's control plane gets."""

from tenant_operator.defaults.documents import read_manifests
from tenant_operator.defaults.rights import ADMINS_FILE, SYNCER_FILE, syncer_role
from tenant_operator.edge.builtin_manifests import builtin_manifests
from tests.packages import ROOT

BUILTIN = builtin_manifests()


def test_the_role_is_the_one_that_people_apply() -> None:
    people = (ROOT / "packaging/rbac/options/vc-syncer-tenant.yaml").read_text()
    assert syncer_role(BUILTIN[SYNCER_FILE]) == read_manifests(people, "vc-syncer-tenant.yaml")


def test_the_syncer_has_roles_and_their_bindings() -> None:
    found = [(each["kind"], each["metadata"]["name"]) for each in syncer_role(BUILTIN[SYNCER_FILE])]
    assert found == [
        ("ClusterRole", "vcnode:vc-syncer"),
        ("ClusterRole", "vcnode:vc-syncer-networks"),
        ("ClusterRoleBinding", "vcnode:vc-syncer"),
        ("ClusterRoleBinding", "vcnode:vc-syncer-networks"),
    ]


def test_more_rules_go_into_the_first_role_alone() -> None:
    rule = {"apiGroups": ["example.com"], "resources": ["widgets"], "verbs": ["list", "watch", "patch"]}
    plain, more = syncer_role(BUILTIN[SYNCER_FILE]), syncer_role(BUILTIN[SYNCER_FILE], [rule])
    assert more[0]["rules"] == [*plain[0]["rules"], rule]
    assert more[1:] == plain[1:]


def test_administrators_are_bound_by_their_group() -> None:
    """A certificate of `system:masters` could not be taken back before its end."""
    assert read_manifests(BUILTIN[ADMINS_FILE], ADMINS_FILE) == (
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "vcnode:tenant-admins"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "cluster-admin",
            },
            "subjects": [
                {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "vcnode:tenant-admins"}
            ],
        },
    )


def test_nothing_built_in_names_the_masters() -> None:
    assert [
        name for name, text in BUILTIN.items() if "system:masters" in text.replace("`system:masters`", "")
    ] == []
