# SPDX-License-Identifier: Apache-2.0
"""Whether a tenant's Endpoints or EndpointSlice may go down: whose addresses they lead to. Pure."""

from collections.abc import Collection

from syncer.core.objects import Object
from syncer.core.plan import Refusal
from syncer.policy.sync_policy import SyncPolicy


def refusals(
    endpoints_or_slice: Object,
    policy: SyncPolicy,
    own_pod_ips: Collection[str],
    own_api_server_ips: Collection[str] | None = None,
) -> tuple[Refusal, ...]:
    """What of an Endpoints object or an EndpointSlice may not go down."""
    raise NotImplementedError
