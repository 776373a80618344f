# SPDX-License-Identifier: Apache-2.0
"""RuntimeClasses come up by label. Pure."""

from daemonkit.kube.resources import Resource
from syncer.core.objects import SyncedKind
from syncer.kinds.port import KindSync
from syncer.kinds.published import PublishedSync

KIND = SyncedKind(Resource("node.k8s.io", "v1", "runtimeclasses", is_namespaced=False), "RuntimeClass")

SYNC: KindSync = PublishedSync(KIND, (("handler",),))
