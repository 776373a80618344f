# SPDX-License-Identifier: Apache-2.0
"""StorageClasses come up by label. Pure."""

from daemonkit.kube.resources import Resource
from syncer.core.objects import SyncedKind
from syncer.kinds.port import KindSync
from syncer.kinds.published import PublishedSync

KIND = SyncedKind(Resource("storage.k8s.io", "v1", "storageclasses", is_namespaced=False), "StorageClass")

SYNC: KindSync = PublishedSync(
    KIND, (("provisioner",), ("parameters",), ("reclaimPolicy",), ("volumeBindingMode",))
)
