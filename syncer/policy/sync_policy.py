# SPDX-License-Identifier: Apache-2.0
"""The SyncPolicy of a tenant, parsed. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SyncPolicy:
    """What the tenant's objects may have; the defaults are those of a tenant without a SyncPolicy."""


DEFAULT = SyncPolicy()
