# SPDX-License-Identifier: Apache-2.0
"""What was seen while a case was played: written by the player, read by the judges."""

from dataclasses import dataclass, field

from devkit.kubelet.replies import Exchange
from tests.cases.replies import ReceivedReply


@dataclass(slots=True)
class CaseExchange:
    """What one request of the case's own client met."""

    request: bytes
    is_refused: bool = False  # TLS ended before any reply
    detail: str = ""
    reply: ReceivedReply | None = None
    received: bytes = b""
    is_open_after: bool | None = None
    closed_s: float | None = None


@dataclass(slots=True)
class OtherSeen:
    identity: str
    request: str
    wanted: tuple[int, ...]
    status: int | None
    received: bytes


@dataclass(slots=True)
class Record:
    """Everything that happened, for the judge."""

    seen: list[CaseExchange] = field(default_factory=list)
    others: list[OtherSeen] = field(default_factory=list)
    exchanges: list[Exchange] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    tunnel_sent: tuple[int, str] | None = None
    tunnel_received: tuple[int, str] | None = None
    reply_after_s: float = 0.0
