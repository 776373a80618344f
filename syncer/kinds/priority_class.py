# SPDX-License-Identifier: Apache-2.0
"""PriorityClasses come up by label. Pure."""

from daemonkit.kube.resources import Resource
from syncer.core.objects import SyncedKind
from syncer.kinds.port import KindSync
from syncer.kinds.published import PublishedSync

KIND = SyncedKind(
    Resource("scheduling.k8s.io", "v1", "priorityclasses", is_namespaced=False), "PriorityClass"
)

SYNC: KindSync = PublishedSync(KIND, (("value",), ("preemptionPolicy",)))
