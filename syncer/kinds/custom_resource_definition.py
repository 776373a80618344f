# SPDX-License-Identifier: Apache-2.0
"""CustomResourceDefinitions come up by label, whole: validation rules and selectable fields too. Pure.

The status is each API server's own. No field leads to a deletion: it would take all custom resources along.
"""

from daemonkit.kube.resources import Resource
from syncer.core.objects import SyncedKind
from syncer.kinds.port import KindSync
from syncer.kinds.published import PublishedSync

_RESOURCE = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", is_namespaced=False)
KIND = SyncedKind(_RESOURCE, "CustomResourceDefinition")

SYNC: KindSync = PublishedSync(KIND)
