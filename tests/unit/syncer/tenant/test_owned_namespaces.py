# SPDX-License-Identifier: Apache-2.0
from types import SimpleNamespace
from typing import Any

import pytest

from syncer.core.tenant_cluster import TenantCluster
from syncer.tenant import owned_namespaces
from syncer.tenant.owned_namespaces import OwnedNamespaces
from tenancy.super_namespaces import SuperNamespaceOwner

OWNERS = {
    "red-web": SuperNamespaceOwner("red", "web", "u-web", "vc-1"),
    "red-earlier": SuperNamespaceOwner("red", "earlier", "u-earlier", "vc-0"),
    "red-moved": SuperNamespaceOwner("red", "elsewhere", "u-moved", "vc-1"),
    "red-rival": SuperNamespaceOwner("blue", "rival", "u-rival", "vc-1"),
    "red-refused": "its annotations contradict its name",
}


def _namespaces() -> tuple[OwnedNamespaces, SimpleNamespace]:
    tenant = SimpleNamespace(tenant=TenantCluster("red", "tenants", "one", "vc-1"))
    super_cluster: Any = SimpleNamespace(owners=SimpleNamespace(by_namespace=OWNERS))
    return OwnedNamespaces(tenant, super_cluster), tenant


@pytest.mark.parametrize(
    ("namespace", "owned", "owns"),
    [
        ("web", "red-web", True),
        ("none", None, False),
        ("earlier", None, False),
        ("moved", None, True),
        ("rival", None, False),
        ("refused", None, False),
        ("x" * 63, None, False),
    ],
)
def test_whose_a_super_namespace_is(namespace: str, owned: str | None, owns: bool) -> None:
    found, _ = _namespaces()
    assert found.owned(namespace) == owned
    assert found.owns(f"red-{namespace}") is owns


def test_another_virtual_cluster_is_another_tenant() -> None:
    found, tenant = _namespaces()
    tenant.tenant = TenantCluster("red", "tenants", "one", "vc-0")
    assert (found.owned("web"), found.owned("earlier")) == (None, "red-earlier")


def test_names_are_remembered_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owned_namespaces, "MAX_NAMES", 10)
    found, _ = _namespaces()
    names = [found.super_name(f"n{number}") for number in range(100)]
    assert names == [f"red-n{number}" for number in range(100)]
    assert len(found._super_names) <= 10  # noqa: SLF001 - what is remembered has no reader outside
