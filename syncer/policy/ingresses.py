# SPDX-License-Identifier: Apache-2.0
"""Whether a tenant's Ingress may go down. Pure."""

from syncer.core.objects import Object
from syncer.core.plan import Refusal
from syncer.policy.sync_policy import SyncPolicy


def refusals(ingress: Object, policy: SyncPolicy) -> tuple[Refusal, ...]:
    """What of an Ingress may not go down."""
    raise NotImplementedError
