# SPDX-License-Identifier: Apache-2.0
"""What the rest of the syncer asks before it writes, and the answer of a process without replicas."""

from typing import Protocol


class TenantOwnership(Protocol):
    """Whether this process writes for a tenant, by its cluster key."""

    def may_write(self, tenant: str) -> bool:
        """Whether a write may be sent now. It takes no time and no request: ask right before each."""

    def begin_write(self, tenant: str) -> bool:
        """As `may_write`. If so, no other process takes the tenant over in order before `end_write`."""

    def end_write(self, tenant: str) -> None:
        """The write has been answered, or has failed."""


class SoleOwner:
    """The ownership of a process that has no replicas: all tenants are its own."""

    def may_write(self, tenant: str) -> bool:
        return True

    def begin_write(self, tenant: str) -> bool:
        return True

    def end_write(self, tenant: str) -> None:
        pass
