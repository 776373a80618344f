# SPDX-License-Identifier: Apache-2.0
"""Tenants of which one's super namespaces could have the names of another's."""

from daemonkit.kube.kubeconfig import Access
from syncer.core.tenant_cluster import TenantCluster
from syncer.sources.port import Reachable, TenantState, Unusable, overlap_message, without_overlaps


def tenant(key: str, virtual_cluster: tuple[str, str] | None = None) -> Reachable:
    return Reachable(
        TenantCluster(key, key, "vc", f"uid-{key}"), Access("https://127.0.0.1"), virtual_cluster
    )


def test_of_two_keys_in_a_directory_the_longer_is_refused() -> None:
    """In any order: each replica decides so by all keys."""
    acme, blue, rival = tenant("acme"), tenant("acme-blue"), tenant("rival")
    refused = Unusable("acme-blue", "ClusterKeyTaken", overlap_message("acme-blue"))
    found: dict[str, TenantState] = {"1": acme, "2": blue, "3": rival}
    assert without_overlaps(found) == {"1": acme, "2": refused, "3": rival}
    assert without_overlaps({"1": blue, "2": acme}) == {"1": refused, "2": acme}
    assert without_overlaps({"1": rival, "2": tenant("rivals")}) == {"1": rival, "2": tenant("rivals")}


def test_keys_of_virtual_clusters_may_continue_each_other() -> None:
    found = {"1": tenant("acme", ("tenants", "acme")), "2": tenant("acme-blue", ("tenants", "acme-blue"))}
    assert without_overlaps(found) == found
