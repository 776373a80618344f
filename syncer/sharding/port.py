# SPDX-License-Identifier: Apache-2.0
"""What the rest of the syncer asks before it writes, and the answer of a process without replicas."""

from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Protocol


class Write(Protocol):
    """A write for a tenant that has begun. Each ends once, by `end`."""

    def may_send(self) -> bool:
        """Whether it may go out now. Ask with nothing awaited between the answer and the sending."""

    @property
    def deadline(self) -> AbstractAsyncContextManager[object]:
        """To be entered around the request: it expires when the tenant may be another process's."""

    def end(self) -> None:
        """The write has been answered, or has failed."""


class TenantOwnership(Protocol):
    """Whether this process writes for a tenant, by its cluster key."""

    def may_write(self, tenant: str) -> bool:
        """Whether a write may be sent now. It takes no time and no request: ask right before each."""

    def holds(self, tenant: str) -> bool:
        """Whether this process has the tenant, though it may not write just now."""

    def begin_write(self, tenant: str) -> "Write | None":
        """Begin a write if `may_write`; no other process takes the tenant over in order before it ends."""


class SoleOwner:
    """The ownership of a process that has no replicas: all tenants are its own."""

    def may_write(self, tenant: str) -> bool:
        return True

    def holds(self, tenant: str) -> bool:
        return True

    def begin_write(self, tenant: str) -> "_OwnWrite":
        return _OWN_WRITE


class _OwnWrite:
    """A write that no replica can take away."""

    deadline: AbstractAsyncContextManager[object] = nullcontext()

    def may_send(self) -> bool:
        return True

    def end(self) -> None:
        pass


_OWN_WRITE = _OwnWrite()
