# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from vcnode_demo.super_cluster import SYNCER_ROLES, rights

MANIFEST = """
kind: ClusterRole
rules:
  - {apiGroups: [""], resources: [pods, pods/status], verbs: [get, patch]}
  - {apiGroups: [a.example], resources: [things], verbs: [list]}
---
kind: ClusterRoleBinding
"""


def test_rights_are_those_of_all_roles(tmp_path: Path) -> None:
    path = tmp_path / "roles.yaml"
    path.write_text(MANIFEST)
    assert rights(path) == {
        ("", "pods", "get"),
        ("", "pods", "patch"),
        ("", "pods/status", "get"),
        ("", "pods/status", "patch"),
        ("a.example", "things", "list"),
    }


@pytest.mark.parametrize(
    ("right", "is_allowed"),
    [
        (("", "configmaps", "patch"), True),
        (("tenancy.x-k8s.io", "virtualclusters/status", "patch"), True),
        (("", "pods/binding", "create"), False),
        (("", "nodes", "patch"), False),
    ],
)
def test_syncer_has_the_rights_of_its_manifest(right: tuple[str, str, str], is_allowed: bool) -> None:
    assert (right in rights(SYNCER_ROLES)) is is_allowed
