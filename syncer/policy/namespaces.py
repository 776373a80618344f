# SPDX-License-Identifier: Apache-2.0
"""Which labels of a tenant's namespace its super namespace must not have. Pure.

Webhooks and meshes of the super cluster choose namespaces by label. A namespace with such a label is not
refused: the label has a meaning in the tenant, too. The syncer gives it another key in the super cluster.
"""

from collections.abc import Iterable

from syncer.policy.sync_policy import SyncPolicy


def withheld_labels(labels: Iterable[str], policy: SyncPolicy) -> frozenset[str]:
    """The keys of these that must not stand in the super cluster as they are."""
    match = policy.namespaces.withheld_labels.match
    return frozenset(key for key in labels if match(key))
