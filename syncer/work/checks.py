# SPDX-License-Identifier: Apache-2.0
"""The checks of what tenants without plans have in the super cluster, by their names."""

from collections.abc import Mapping

from syncer.caches.super_cluster import SuperCaches
from syncer.work.budget_check import BudgetCheck
from syncer.work.detached import Check, DetachedTenants
from syncer.work.endpoint_check import EndpointCheck
from syncer.work.unreadable_check import UnreadableCheck


def all_checks(super_cluster: SuperCaches, tenants: DetachedTenants) -> Mapping[str, Check]:
    """One of each, to `run_check`."""
    return {
        "endpoint check": EndpointCheck(super_cluster, tenants),
        "budget check": BudgetCheck(super_cluster, tenants),
        "unreadable check": UnreadableCheck(super_cluster, tenants),
    }
