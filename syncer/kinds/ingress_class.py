# SPDX-License-Identifier: Apache-2.0
"""IngressClasses come up by label. Pure."""

from daemonkit.kube.resources import Resource
from syncer.core.objects import SyncedKind
from syncer.kinds.port import KindSync
from syncer.kinds.published import PublishedSync

KIND = SyncedKind(Resource("networking.k8s.io", "v1", "ingressclasses", is_namespaced=False), "IngressClass")

SYNC: KindSync = PublishedSync(KIND, (("spec", "controller"),))
