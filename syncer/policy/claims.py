# SPDX-License-Identifier: Apache-2.0
"""Whether a tenant's PersistentVolumeClaim may go down. Pure."""

from typing import Any

from syncer.core.objects import Object
from syncer.core.plan import Refusal
from syncer.policy.refusal_list import RefusalList, shown, text_of
from syncer.policy.sync_policy import SyncPolicy

# Before `storageClassName`; it still wins over it.
_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"


def refusals(claim: Object, policy: SyncPolicy) -> tuple[Refusal, ...]:
    """What of a claim may not go down."""
    found = RefusalList()
    classes = policy.claims.storage_classes
    metadata = found.fields("metadata", claim.get("metadata"))
    annotations = found.fields("metadata.annotations", metadata.get("annotations"))
    own = text_of(annotations.get(_CLASS_ANNOTATION))
    if own and classes is not None and own not in classes:
        found.add(
            f"metadata.annotations[{_CLASS_ANNOTATION}]",
            f"storage class {shown(own)}",
            "claims.storageClasses",
        )
    check_spec(found, "spec", claim.get("spec"), policy)
    return found.done()


def check_spec(found: RefusalList, path: str, value: Any, policy: SyncPolicy) -> None:
    """Refuse what a claim's spec may not have; that of a pod's ephemeral volume too."""
    spec = found.fields(path, value)
    classes = policy.claims.storage_classes
    own = text_of(spec.get("storageClassName"))
    if classes is not None and own not in classes:
        what = f"storage class {shown(own)}" if own else "a claim without a storage class"
        found.add(f"{path}.storageClassName", what, "claims.storageClasses")
    # It can be changed at any time (GA in 1.34), and says how fast the storage is that others share.
    attributes = text_of(spec.get("volumeAttributesClassName"))
    if attributes and attributes not in policy.claims.attributes_classes:
        found.add(
            f"{path}.volumeAttributesClassName",
            f"volume attributes class {shown(attributes)}",
            "claims.volumeAttributesClasses",
        )
    # Its namespace would be one of the super cluster.
    if found.fields(f"{path}.dataSourceRef", spec.get("dataSourceRef")).get("namespace"):
        found.add(f"{path}.dataSourceRef.namespace", "a source in another namespace")
