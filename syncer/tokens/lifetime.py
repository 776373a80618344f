# SPDX-License-Identifier: Apache-2.0
"""When a token has to be renewed. Pure.

The kubelet's rule (pkg/kubelet/token/token_manager.go, requiresRefresh): at 80 % of the lifetime, or after 24
hours if that is earlier. Its jitter is 10 s. Ours is wider, as one process renews for all nodes. Pods
that were made together are renewed apart.
"""

import zlib
from dataclasses import dataclass

MIN_EXPIRATION_S = 600
MAX_EXPIRATION_S = 1 << 32
"""The bounds that the API server has for a TokenRequest."""

_SHARE = 0.8
_MAX_AGE_S = 24 * 3600.0
_JITTER_SHARE = 0.05
# Whatever lifetime a tenant's API server grants.
_MIN_WAIT_S = 60.0


@dataclass(frozen=True, slots=True)
class TokenLifetime:
    """One token without its text: what was requested, for how long it was granted, and when.

    `issued_s` is our own time of day, so that a tenant's clock that is wrong does no harm.
    """

    key: str
    audience: str
    requested_s: int
    granted_s: int
    issued_s: float

    def renewal_s(self, jitter: float) -> float:
        """When it is to be renewed. `jitter` is from 0 to 1."""
        wait_s = max(_MIN_WAIT_S, min(_SHARE * self.granted_s, _MAX_AGE_S))
        return self.issued_s + wait_s * (1 - _JITTER_SHARE * jitter)

    def expiry_s(self) -> float:
        return self.issued_s + self.granted_s


def bounded_expiration_s(asked_s: int) -> int:
    """What can be requested of an API server."""
    return max(MIN_EXPIRATION_S, min(asked_s, MAX_EXPIRATION_S))


def jitter_of(pod_uid: str, key: str) -> float:
    """From 0 to 1, the same after a restart."""
    return zlib.crc32(f"{pod_uid}/{key}".encode()) / (1 << 32)


def next_renewal_s(pod_uid: str, tokens: tuple[TokenLifetime, ...], now_s: float) -> float:
    """When the first of a pod's tokens is to be renewed.

    A token that was issued in the future was issued by a clock that is back now: its age is unknown.
    """
    return min(
        now_s if each.issued_s > now_s else each.renewal_s(jitter_of(pod_uid, each.key)) for each in tokens
    )


def due_tokens(
    pod_uid: str, tokens: tuple[TokenLifetime, ...], ahead_s: float = 60.0
) -> tuple[TokenLifetime, ...]:
    """The tokens to renew together, once the first is due: they stand in the same Secret."""
    due = {each.key: each.renewal_s(jitter_of(pod_uid, each.key)) for each in tokens}
    last_s = min(due.values()) + ahead_s
    return tuple(each for each in tokens if due[each.key] <= last_s)
