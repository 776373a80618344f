# SPDX-License-Identifier: Apache-2.0
"""ConfigMaps go down whole. Nothing comes up. Pure.

`kube-root-ca.crt` is made by both control planes, with different content: the tenant's goes down under the
name that upstream gave it, and its pods mount that one. Another of that name in the tenant stays there.
"""

from daemonkit.kube.resources import CONFIG_MAPS, Key
from syncer.core.objects import Object, SyncedKind, metadata
from syncer.core.pair import Pair
from syncer.core.plan import NOTHING, Delete, Half, Plan, Refusal
from syncer.core.view import View
from syncer.kinds.downward import plan_down, plan_removal, start
from syncer.kinds.port import KindSync, Scope

KIND = SyncedKind(CONFIG_MAPS, "ConfigMap")
ROOT_CA = "kube-root-ca.crt"
TENANT_ROOT_CA = "tenant-kube-root-ca.crt"


_NOT_FREE = Refusal("metadata.name", f"in the super cluster {ROOT_CA} has this name; choose another")


def _owned(value: Object) -> Object:
    return {name: value[name] for name in ("data", "binaryData", "immutable") if name in value}


class ConfigMapSync:
    """ConfigMaps."""

    kind = KIND
    scope = Scope.NAMESPACED
    holds_changes = True

    def super_name(self, name: str) -> str:
        return TENANT_ROOT_CA if name == ROOT_CA else name

    def tenant_name(self, super_name: str) -> str | None:
        if super_name == ROOT_CA:
            return None
        return ROOT_CA if super_name == TENANT_ROOT_CA else super_name

    def plan(self, key: Key, objects: Pair[Object], view: View) -> Plan:
        tenant, found = objects
        if key[1] == TENANT_ROOT_CA:
            # What is there under this name is of another object: each would delete the other's for ever.
            return NOTHING if tenant is None else Plan(Half(refusals=(_NOT_FREE,)))
        if tenant is None:
            return NOTHING if found is None else plan_removal(KIND, found, key[0], view)
        desired = start(KIND, tenant, view)
        if isinstance(desired, dict):
            metadata(desired)["name"] = self.super_name(key[1])
        # Pods read all of it.
        return plan_down(KIND, tenant, found, desired, view, owned=_owned, is_exclusive=True)

    def plan_unreadable(self, key: Key, found: Object, view: View) -> tuple[Delete, ...]:
        del key, found, view
        return ()


SYNC: KindSync = ConfigMapSync()
