# SPDX-License-Identifier: Apache-2.0
"""Decides when a deleted pod is withdrawn from kata-bridge.

Only after `FORGET_S`: the kubelet ends a pod's containers, not a relist that lacked the pod.
"""

from collections.abc import Collection

FORGET_S = 600.0


class Withdrawals:
    """Pods by UID: those that were submitted by their UID, and since when a pod is gone."""

    def __init__(self) -> None:
        self._submitted: set[str] = set()
        self._gone_since: dict[str, float] = {}

    def record_submitted(self, uids: Collection[str]) -> None:
        """kata-bridge gets resolvers or messages for these pods."""
        self._submitted |= set(uids)

    def evaluate(
        self,
        alive: Collection[str],
        retaining: Collection[str],
        known_sandboxes: Collection[str],
        withdrawn: Collection[str],
        now: float,
    ) -> tuple[set[str], set[str]]:
        """The pods to withdraw now, and those to forget for good.

        `retaining` had a resolver, `known_sandboxes` a sandbox; `withdrawn` are those whose withdrawal
        kata-bridge has acknowledged.
        """
        to_withdraw, to_forget = set(), set()
        submitted = self._submitted | set(retaining)
        for uid in submitted | set(known_sandboxes):
            if uid in alive:
                self._gone_since.pop(uid, None)
                continue
            since = self._gone_since.setdefault(uid, now)
            is_due = since + FORGET_S <= now
            is_done = uid in withdrawn or (is_due and uid not in submitted)
            if is_done or since + 2 * FORGET_S <= now:
                del self._gone_since[uid]
                self._submitted.discard(uid)
                to_forget.add(uid)
            elif is_due:
                to_withdraw.add(uid)
        return to_withdraw, to_forget

    def times(self) -> list[float]:
        """When the next steps are due."""
        return [since + after for since in self._gone_since.values() for after in (FORGET_S, 2 * FORGET_S)]
