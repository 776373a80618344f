# SPDX-License-Identifier: Apache-2.0
"""Which VirtualClusters have cluster keys that may overlap a given one, without a look at all of them."""

import bisect
from collections.abc import Iterator

from daemonkit.kube.resources import Key
from tenancy import names


class ClusterKeys:
    """Cluster keys of VirtualClusters, sorted: those that overlap one are beside it, or begin it."""

    def __init__(self) -> None:
        self._sorted: list[tuple[str, Key]] = []

    def add(self, cluster_key: str, key: Key) -> None:
        """Note the cluster key of this VirtualCluster."""
        bisect.insort(self._sorted, (cluster_key, key))

    def remove(self, cluster_key: str, key: Key) -> None:
        """It has this cluster key no longer."""
        at = bisect.bisect_left(self._sorted, (cluster_key, key))
        if self._sorted[at : at + 1] == [(cluster_key, key)]:
            del self._sorted[at]

    def overlapping(self, cluster_key: str) -> Iterator[Key]:
        """Those whose keys overlap this one (`tenancy.names.overlaps`); equal keys, too."""
        begins = [cluster_key[:at] for at, each in enumerate(cluster_key) if each == "-"]
        for begin in begins:
            yield from (key for _, key in self._from(begin, is_whole=True))
        # A cut key has as many characters as its others have in common.
        for other, key in self._from(cluster_key[: names.HASHED_PREFIX_CHARS], is_whole=False):
            if other not in begins and names.overlaps(cluster_key, other):
                yield key

    def _from(self, begin: str, *, is_whole: bool) -> Iterator[tuple[str, Key]]:
        """Those with this key, or whose keys begin so."""
        at = bisect.bisect_left(self._sorted, (begin,))
        while at < len(self._sorted):
            found = self._sorted[at]
            if found[0] != begin if is_whole else not found[0].startswith(begin):
                return
            yield found
            at += 1
