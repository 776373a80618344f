# SPDX-License-Identifier: Apache-2.0
"""The part of every daemon's configuration for its status endpoints."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from daemonkit.config.binding import setting
from daemonkit.config.ip_addresses import is_loopback


@dataclass(frozen=True, slots=True)
class StatusConfig:
    """Where /healthz, /readyz, /metrics and /status are served: a unix socket, or loopback."""

    socket: Path | None = setting(None, doc="unix socket of /healthz, /readyz, /metrics and /status")
    address: str | None = setting(None, minimum_length=1, doc="loopback address, instead of a socket")
    port: int = setting(0, minimum=0, maximum=65535, doc="of the loopback address; 0 takes any free one")

    @property
    def listen_at(self) -> Path | tuple[str, int] | None:
        """The address for `daemonkit.status.server`; None to serve nothing."""
        if self.socket is not None:
            return self.socket
        return None if self.address is None else (self.address, self.port)

    def directories(self, key: str = "status") -> Iterator[tuple[str, Path]]:
        """The directory of its socket, if it has one, with its key; `key` is that of the whole part."""
        if self.socket is not None:
            yield f"{key}.socket", self.socket.parent

    def problems(self) -> Iterator[str]:
        if self.socket is not None and self.address is not None:
            yield "socket: give socket or address, not both"
        if self.address is not None and not is_loopback(self.address):
            yield f"address: expected a loopback address, got {self.address!r}"
