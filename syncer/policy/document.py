# SPDX-License-Identifier: Apache-2.0
"""SyncPolicy objects, parsed. Pure."""

from syncer.core.objects import Object
from syncer.policy.sync_policy import SyncPolicy


def parse(obj: Object) -> SyncPolicy | tuple[str, ...]:
    """The policy of a SyncPolicy object, or all its errors with their paths."""
    raise NotImplementedError
