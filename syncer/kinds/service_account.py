# SPDX-License-Identifier: Apache-2.0
"""ServiceAccounts go down without their Secrets. Nothing comes up. Pure.

Both control planes make `default` in each namespace. The super cluster's becomes the tenant's by three
annotations, and one that is made here gets the same, so that the order makes no difference.
"""

from daemonkit.kube.resources import Key, Resource
from syncer.core.objects import Object, SyncedKind, metadata
from syncer.core.pair import Pair
from syncer.core.plan import NOTHING, Plan
from syncer.core.view import View
from syncer.kinds.downward import plan_down, plan_removal, start
from syncer.kinds.port import KindSync, SameName, Scope
from tenancy import keys

KIND = SyncedKind(Resource("", "v1", "serviceaccounts"), "ServiceAccount")
DEFAULT = "default"

# As for Secrets.
_DOMAINS: tuple[str, ...] = ()
_NOT_ON_DEFAULT = (keys.OWNER_REFERENCES, keys.VC_NAME, keys.VC_NAMESPACE)


def _owned(value: Object) -> Object:
    fields = ("imagePullSecrets", "automountServiceAccountToken")
    return {name: value[name] for name in fields if name in value}


class ServiceAccountSync(SameName):
    """ServiceAccounts."""

    kind = KIND
    scope = Scope.NAMESPACED

    def plan(self, key: Key, objects: Pair[Object], view: View) -> Plan:
        tenant, found = objects
        if tenant is None:
            return NOTHING if found is None else plan_removal(KIND, found, key[0], view)
        desired = start(KIND, tenant, view)
        if isinstance(desired, dict):
            desired.pop("secrets", None)
            if key[1] == DEFAULT:
                for field in ("labels", "annotations"):
                    for name in _NOT_ON_DEFAULT:
                        metadata(desired)[field].pop(name, None)
        return plan_down(
            KIND, tenant, found, desired, view, owned=_owned, domains=_DOMAINS, adopts=key[1] == DEFAULT
        )


SYNC: KindSync = ServiceAccountSync()
