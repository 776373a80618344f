# SPDX-License-Identifier: Apache-2.0
"""A kind's refusals together with those of its annotations, as its plans ask for them."""

from collections.abc import Callable

from syncer.core.objects import Object
from syncer.core.plan import Refusal
from syncer.policy import metadata_keys
from syncer.policy.sync_policy import SyncPolicy

DOMAINS = ("kubernetes.io", "k8s.io")


def rules(kind: str, value: Object, policy: SyncPolicy) -> metadata_keys.KeyRules:
    is_open = metadata_keys.is_open(kind, value)
    return metadata_keys.rules_for(kind, policy, DOMAINS, is_open=is_open)


def with_keys(
    kind: str, refusals: Callable[[Object, SyncPolicy], tuple[Refusal, ...]]
) -> Callable[[Object, SyncPolicy], tuple[Refusal, ...]]:
    """The function `refusals` of a kind, with its annotations judged first."""

    def judged(value: Object, policy: SyncPolicy) -> tuple[Refusal, ...]:
        keys = metadata_keys.refusals(value, rules(kind, value, policy), lambda _: False)
        return keys + tuple(each for each in refusals(value, policy) if each not in keys)

    return judged
