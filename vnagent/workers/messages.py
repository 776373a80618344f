# SPDX-License-Identifier: Apache-2.0
"""What the main process and a worker send each other, and its bytes: MessagePack behind a length.

Both ends are of one version. A worker that was started after the package was upgraded ends itself.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from daemonkit.metrics import Snapshot
from tenancy.ownership import Owned
from tenancy.registry import SpiffeTrust
from tenancy.tenant import Tenant
from vnagent.config import VnAgentConfiguration
from vnagent.core.requests import PageRequest

# Each of the two processes sends something each second. The main process ends a worker that is silent for so
# long. A worker whose main process is silent ends itself.
SILENT_S = 15.0
# A check that comes so late shows nothing about the other process.
PAUSE_S = 2.0
LENGTH_BYTES = 4
# 30 000 tenants of 32 KB, the most that a start sends.
MAX_MESSAGE_BYTES = 1 << 30


class Setup(msgspec.Struct, tag=True, frozen=True):
    """The first message to a worker. `worker` is its index among `workers`, `version` the main process'."""

    version: str
    config: VnAgentConfiguration
    worker: int
    workers: int


class TenantsChanged(msgspec.Struct, tag=True, frozen=True):
    """Tenants by their source, and sources that are gone. `rows` are the tenants' in the usage table.

    A worker answers `TenantsApplied` with the same `generation`.
    """

    generation: int
    changed: Mapping[str, Tenant]
    removed: tuple[str, ...]
    rows: Mapping[str, int]
    spiffe: SpiffeTrust | None


class PodsChanged(msgspec.Struct, tag=True, frozen=True):
    """All pods that are served."""

    pods: tuple[Owned, ...]


class WorkerConditions(msgspec.Struct, tag=True, frozen=True):
    """Whether the source of pods cannot be read now, and the level of the log. It comes each second: a worker
    that gets nothing ends itself."""

    are_pods_stale: bool
    log_level: str


class PageRendered(msgspec.Struct, tag=True, frozen=True):
    """The answer to `PageRequested`. `number` counts the tenant's renders."""

    request: int
    number: int
    content_type: str
    body: bytes
    compressed: bytes | None


class PageFailed(msgspec.Struct, tag=True, frozen=True):
    """A page cannot be had. `fetch_reason`: the kubelet's, `wait_s`: the tenant is above its rate; without
    either it is malformed."""

    request: int
    fetch_reason: str | None = None
    wait_s: float | None = None


class PodsRead(msgspec.Struct, tag=True, frozen=True):
    """The answer to `PodsRequested`, behind the pods that were read. `is_read` is False after a failure."""

    request: int
    is_read: bool


class ReportRequested(msgspec.Struct, tag=True, frozen=True):
    """WorkerReport now, with the same `request`."""

    request: int


class Reload(msgspec.Struct, tag=True, frozen=True):
    """SIGHUP: reopen the audit log, and read certificates and keys again."""


class Drain(msgspec.Struct, tag=True, frozen=True):
    """Take no more connections, finish streams within `seconds`, and end."""

    seconds: float


class Started(msgspec.Struct, tag=True, frozen=True):
    """The worker takes connections."""


class TenantsApplied(msgspec.Struct, tag=True, frozen=True):
    """What was revoked is cut. `problem`: why trust could not be built from it; the last good one stays.
    Without `has_trust` there is none yet, and no connection can be served."""

    generation: int
    problem: str
    has_trust: bool


class PageRequested(msgspec.Struct, tag=True, frozen=True):
    """Render a page for a tenant. The tenant's next page waits until `PageEnded`."""

    request: int
    page: PageRequest
    tenant: str


class PageEnded(msgspec.Struct, tag=True, frozen=True):
    """The page was sent, or its client has left."""

    request: int


class PodsRequested(msgspec.Struct, tag=True, frozen=True):
    """Read the node's pods now."""

    request: int


class WorkerReport(msgspec.Struct, tag=True, frozen=True):
    """What a worker counts. `stream_protocols`: what streams have shown of the kubelet, as in /status.
    `request` is that of the last `ReportRequested`, 0 before the first.
    """

    request: int
    metrics: tuple[Snapshot, ...]
    connections: int
    tunnels: int
    kubelet_connections: int
    stream_protocols: tuple[dict[str, str | bool], ...]
    audit: str


class AcceptedConnection(NamedTuple):
    """What comes with the descriptor of a connection. `token_port`: where it was accepted, if not on the port
    for certificates."""

    host: str
    token_port: int | None

    def encode(self) -> bytes:
        return f"{self.token_port or 0} {self.host}".encode()

    @classmethod
    def decode(cls, data: bytes) -> "AcceptedConnection":
        port, _, host = data.decode().partition(" ")
        return cls(host, int(port) or None)


ToWorker = (
    Setup
    | TenantsChanged
    | PodsChanged
    | WorkerConditions
    | PageRendered
    | PageFailed
    | PodsRead
    | Reload
    | ReportRequested
    | Drain
)
ToMain = Started | TenantsApplied | PageRequested | PageEnded | PodsRequested | WorkerReport


def encode(message: ToWorker | ToMain) -> bytes:
    """The message with its length in front. Raises ValueError for one of more than MAX_MESSAGE_BYTES."""
    content = _ENCODER.encode(message)
    if len(content) > MAX_MESSAGE_BYTES:
        raise ValueError(f"a message of {len(content)} bytes")
    return len(content).to_bytes(LENGTH_BYTES) + content


def length_of(prefix: bytes) -> int:
    """The length of the content behind it. Raises ValueError for more than MAX_MESSAGE_BYTES."""
    length = int.from_bytes(prefix)
    if length > MAX_MESSAGE_BYTES:
        raise ValueError(f"a message of {length} bytes")
    return length


def decode_for_worker(content: bytes) -> ToWorker:
    """Raises ValueError (msgspec.DecodeError)."""
    message: ToWorker = _FOR_WORKER.decode(content)
    return message


def decode_for_main(content: bytes) -> ToMain:
    """Raises ValueError (msgspec.DecodeError)."""
    message: ToMain = _FOR_MAIN.decode(content)
    return message


def _encode_path(value: object) -> str:
    if isinstance(value, Path):
        return str(value)
    raise NotImplementedError(type(value).__name__)


def _decode_path(kind: type, value: Any) -> Path:
    if kind is Path:
        return Path(value)
    raise NotImplementedError(kind.__name__)


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_encode_path)
_FOR_WORKER: "msgspec.msgpack.Decoder[Any]" = msgspec.msgpack.Decoder(ToWorker, dec_hook=_decode_path)
_FOR_MAIN: "msgspec.msgpack.Decoder[Any]" = msgspec.msgpack.Decoder(ToMain)
