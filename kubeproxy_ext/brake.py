# SPDX-License-Identifier: Apache-2.0
"""Says which lists are held back, and which are believed after all."""

from collections.abc import Iterable

from daemonkit import logs
from daemonkit.kube.relist_guard import DistrustedRemoval
from daemonkit.metrics import Counter, Family

_log = logs.get(__name__)


class Brake:
    """What is held back now, told once when it begins and once when it is believed.

    `held_lists` counts by tenant; `hold_s` is how long the feed holds a list back.
    """

    def __init__(self, hold_s: float, held_lists: Family[Counter]) -> None:
        self.held: frozenset[DistrustedRemoval] = frozenset()
        self._hold_s = hold_s
        self._held_lists = held_lists

    def tell(self, released: Iterable[DistrustedRemoval], held: Iterable[DistrustedRemoval]) -> None:
        """Log what was `released` for its age, and what of `held` is new."""
        for each in released:
            _log.warning(
                "held for long enough, the list is believed",
                tenant=each.tenant,
                namespace=each.lacking.namespace,
            )
        now_held = frozenset(held)
        for each in now_held - self.held:
            self._held_lists.labels(each.tenant).inc()
            _log.error(
                "a list takes a whole namespace from a tenant and is not believed yet"
                if each.lacking.kind == "Namespace"
                else "a list takes all Services from a namespace with endpoints and is not believed yet",
                tenant=each.tenant,
                namespace=each.lacking.namespace,
                services=len(each.names),
                hold_s=self._hold_s,
            )
        self.held = now_held
