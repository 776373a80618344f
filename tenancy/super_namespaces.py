# SPDX-License-Identifier: Apache-2.0
"""Whose a super namespace is: read from its annotations, never from its name.

The one question before every write of the syncer.
"""

from collections.abc import Mapping

import msgspec

from tenancy import keys, names
from tenancy.names import Refused


class SuperNamespaceOwner(msgspec.Struct, frozen=True):
    """The tenant namespace that a super namespace stands for.

    `uid` is that of the tenant's Namespace, `vc_uid` that of its VirtualCluster, or empty.
    """

    key: str
    namespace: str
    uid: str
    vc_uid: str

    def is_of(self, key: str, vc_uid: str) -> bool:
        """Whether it is this tenant's; an empty `vc_uid` on either side is not compared."""
        return self.key == key and (not vc_uid or not self.vc_uid or self.vc_uid == vc_uid)


def owner_of(name: str, annotations: Mapping[str, str]) -> SuperNamespaceOwner | Refused | None:
    """The owner of a super namespace; None for the super cluster's own, Refused where it contradicts itself.

    The annotations must lead to the namespace's own name: one that was copied to another namespace makes
    no owner.
    """
    key, namespace, uid = (annotations.get(each) for each in (keys.CLUSTER, keys.NAMESPACE, keys.UID))
    if key is None and namespace is None and uid is None:
        return None
    if not (key and namespace and uid):
        return Refused("not all of its ownership annotations are set")
    if names.super_namespace(key, namespace) != name:
        return Refused("its ownership annotations belong to another namespace")
    return SuperNamespaceOwner(key, namespace, uid, annotations.get(keys.VC_UID, ""))
