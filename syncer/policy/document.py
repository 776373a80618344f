# SPDX-License-Identifier: Apache-2.0
"""TEMPORARY. Pure."""

from syncer.core.objects import Object
from syncer.policy.sync_policy import DEFAULT, SyncPolicy


def parse(value: Object) -> SyncPolicy | tuple[str, ...]:
    return DEFAULT
