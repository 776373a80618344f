# SPDX-License-Identifier: Apache-2.0
"""What a case's client and kubelet recorded: `client_run` writes it, the checks read it."""

from dataclasses import dataclass, field

from devkit.kubelet.replies import Exchange
from tests.cases.replies import ReceivedReply


@dataclass(slots=True)
class CaseExchange:
    """One request of the case's client and what came back."""

    request: bytes
    is_refused: bool = False  # TLS ended before any reply
    detail: str = ""
    reply: ReceivedReply | None = None
    received: bytes = b""
    is_open_after: bool | None = None
    closed_s: float | None = None


@dataclass(slots=True)
class OtherExchange:
    identity: str
    request: str
    expected: tuple[int, ...]
    status: int | None
    received: bytes


@dataclass(slots=True)
class Record:
    """All exchanges of one case."""

    seen: list[CaseExchange] = field(default_factory=list)
    others: list[OtherExchange] = field(default_factory=list)
    exchanges: list[Exchange] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    tunnel_sent: tuple[int, str] | None = None
    tunnel_received: tuple[int, str] | None = None
    reply_after_s: float = 0.0
