# SPDX-License-Identifier: Apache-2.0
"""Secrets go down whole. Nothing comes up. Pure.

The token of a tenant's service account goes down as type Opaque, so that the super cluster's token controller
leaves it alone. Upstream gives such a Secret a generated name and finds it by label; here it has the tenant's
name. One that upstream made stays while its Secret of the tenant is there: running pods mount it.

The tokens that we had issued for a pod stand in Secrets of their own (`syncer.tokens`).
"""

from daemonkit.kube.resources import SECRETS, Key
from syncer.core.field_ownership import with_foreign_fields
from syncer.core.objects import (
    Object,
    SyncedKind,
    annotations_of,
    labels_of,
    merge_patch,
    metadata,
    name_of,
    namespace_of,
    uid_of,
)
from syncer.core.pair import Pair
from syncer.core.plan import NOTHING, Conflict, Half, Patch, Plan, Side
from syncer.core.unknown import if_known
from syncer.core.view import View
from syncer.kinds.downward import owns, plan_down, plan_removal, start
from syncer.kinds.port import KindSync, SameName, Scope
from tenancy import keys

KIND = SyncedKind(SECRETS, "Secret")
SERVICE_ACCOUNT_TOKEN = "kubernetes.io/service-account-token"  # noqa: S105 - a type, not a secret

# Upstream strips no opaque domains from Secrets. What it brought down of them is not the super cluster's own.
_DOMAINS: tuple[str, ...] = ()


def _owned(value: Object) -> Object:
    return {name: value[name] for name in ("data", "immutable") if name in value}


class SecretSync(SameName):
    """Secrets. Reactive for those of upstream, which have another name than the tenant's."""

    kind = KIND
    scope = Scope.NAMESPACED

    def plan(self, key: Key, objects: Pair[Object], view: View) -> Plan:
        tenant, found = objects
        if found is not None and keys.POD_TOKENS in labels_of(found):
            taken = Conflict(f"Secret {namespace_of(found)}/{name_of(found)} has the tokens of a pod")
            return NOTHING if tenant is None else Plan(Half(conflict=taken))
        if tenant is None:
            return NOTHING if found is None else _plan_without_tenant(key, found, view)
        desired = start(KIND, tenant, view)
        if isinstance(desired, dict) and tenant.get("type") == SERVICE_ACCOUNT_TOKEN:
            desired["type"] = "Opaque"
            metadata(desired)["labels"][keys.SECRET_UID] = uid_of(tenant)
            metadata(desired)["annotations"][keys.SECRET_NAME] = key[1]
        return plan_down(
            KIND, tenant, found, desired, view, owned=_owned, domains=_DOMAINS, is_exclusive=True
        )


def _plan_without_tenant(key: Key, found: Object, view: View) -> Plan:
    """The removal; but upstream's copy of a token is kept current as long as the tenant has its Secret."""
    name, uid = annotations_of(found).get(keys.SECRET_NAME), labels_of(found).get(keys.SECRET_UID)
    if name and uid and name != key[1] and owns(found, view, key[0]):
        source = if_known(view.in_tenant(KIND.kind, key[0], name))  # else the removal is held
        if source is not None and uid_of(source) == uid:
            actual = _owned(found)
            body = merge_patch(actual, with_foreign_fields(_owned(source), actual, found))
            patch = Patch(Side.SUPER, KIND, namespace_of(found), name_of(found), uid_of(found), body)
            return Plan(Half((patch,))) if body else NOTHING
    return plan_removal(KIND, found, key[0], view)


SYNC: KindSync = SecretSync()
