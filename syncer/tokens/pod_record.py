# SPDX-License-Identifier: Apache-2.0
"""What is known of the tokens of one pod, and what becomes of it. Pure.

Times of tokens are of the day (`now_s`), those of a backoff of a monotonic clock.
"""

from collections.abc import Iterable
from dataclasses import replace

import msgspec

from daemonkit.backoff import backoff_s, spread_s
from syncer.core.plan import IssueTokens
from syncer.tokens.documents import PodTokens, requests_of
from syncer.tokens.lifetime import TokenLifetime, due_tokens, jitter_of, next_renewal_s

FIRST_BACKOFF_S = 10.0
# A token of the shortest lifetime has 120 s left when its renewal begins, and others have more.
MAX_BACKOFF_S = 60.0


class PodRecord(msgspec.Struct):
    """One pod's tokens. `is_leaving`: the super pod is gone; `is_removing`: its Secret is being deleted.

    `secret_uid` is empty while the Secret is to be made again.
    """

    pod: PodTokens
    secret_uid: str
    is_leaving: bool = False
    is_removing: bool = False
    is_queued: bool = False
    failures: int = 0

    @property
    def issued_s(self) -> float:
        """When the last of the tokens was issued."""
        return _issued_s(self.pod)

    def renewal_wait_s(self, now_s: float) -> float:
        """How long until the tokens are to be renewed."""
        return max(0.0, next_renewal_s(self.pod.uid, self.pod.tokens, now_s) - now_s)

    def due(self) -> tuple[TokenLifetime, ...]:
        """The tokens to ask for now: those that end soonest, and all without a Secret."""
        return due_tokens(self.pod.uid, self.pod.tokens) if self.secret_uid else self.pod.tokens

    def has(self, action: IssueTokens) -> bool:
        """Whether the Secret that is asked for is there, with these tokens."""
        is_same = requests_of(self.pod.tokens) == action.tokens
        return bool(self.secret_uid) and is_same and self.pod.secret_name == action.secret_name

    def take_over(self, found: PodTokens, secret_uid: str) -> bool:
        """A Secret as another replica wrote it; False if it is no newer than what is known."""
        if self.pod.secret_name != found.secret_name or _issued_s(found) <= self.issued_s:
            return False
        self.pod, self.secret_uid = found, secret_uid
        return True

    def lose(self, secret_uid: str) -> bool:
        """The Secret of this UID was deleted; whether it is to be made again."""
        if self.is_leaving or self.secret_uid != secret_uid:
            return False
        self.secret_uid = ""
        return True

    def leave(self) -> bool:
        """The super pod is gone; whether that is new."""
        if self.is_leaving:
            return False
        self.is_leaving, self.failures = True, 0
        return True

    def stay(self) -> bool:
        """The super pod is made, or made again: its Secret stays. Whether it was leaving."""
        was_leaving, self.is_leaving = self.is_leaving, False
        return was_leaving

    def renewed(self, tokens: Iterable[TokenLifetime]) -> PodTokens:
        """The pod's tokens with these in the place of those of their keys."""
        found = {each.key: each for each in tokens}
        return replace(self.pod, tokens=tuple(found.get(each.key, each) for each in self.pod.tokens))

    def note_renewed(self, pod: PodTokens, secret_uid: str) -> bool:
        """The Secret has these tokens; whether a try had failed before."""
        had_failed, self.failures = self.failures > 0, 0
        self.pod, self.secret_uid = pod, secret_uid
        return had_failed

    def note_failure(self, jitter: float) -> float:
        """Returns how long to wait. `jitter` is from 0 to 1."""
        self.failures += 1
        return _backoff_s(self.failures, jitter)


class TenantBackoff(msgspec.Struct):
    """Of a tenant whose API server does not answer no pod's tokens are asked for a while."""

    failures: int = 0
    blocked_until_s: float = 0.0

    def note_answer(self) -> None:
        self.failures = 0

    def note_failure(self, now_s: float, jitter: float) -> float:
        """Returns how long to wait. `jitter` is from 0 to 1."""
        self.failures += 1
        wait_s = _backoff_s(self.failures, jitter)
        self.blocked_until_s = now_s + wait_s
        return wait_s

    def wait_s(self, pod_uid: str, now_s: float) -> float:
        """How long a pod's tokens are not asked for; 0 if they may be now."""
        if now_s >= self.blocked_until_s:
            return 0.0
        # Spread, so that not all come at once when it is over.
        return self.blocked_until_s - now_s + jitter_of(pod_uid, "") * FIRST_BACKOFF_S


def _backoff_s(failures: int, jitter: float) -> float:
    return spread_s(backoff_s(failures, first_s=FIRST_BACKOFF_S, longest_s=MAX_BACKOFF_S), jitter)


def _issued_s(pod: PodTokens) -> float:
    return max(each.issued_s for each in pod.tokens)
