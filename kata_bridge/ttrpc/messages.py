# SPDX-License-Identifier: Apache-2.0
"""ttrpc's request and response, whose payloads are messages of the service. Pure."""

from dataclasses import dataclass

from daemonkit.protobuf import BYTES, INT64, STRING, enumeration, field, message_of, messages_of
from kata_bridge.ttrpc.status import Code


@dataclass(frozen=True, slots=True)
class KeyValue:
    key: str = field(1, STRING)
    value: str = field(2, STRING)


@dataclass(frozen=True, slots=True)
class Request:
    """`service` has no leading slash; `timeout_nano` 0 means no deadline."""

    service: str = field(1, STRING)
    method: str = field(2, STRING)
    payload: bytes = field(3, BYTES)
    timeout_nano: int = field(4, INT64)
    metadata: tuple[KeyValue, ...] = field(5, messages_of(KeyValue))


@dataclass(frozen=True, slots=True)
class RpcStatus:
    code: Code = field(1, enumeration(Code))
    message: str = field(2, STRING)


@dataclass(frozen=True, slots=True)
class Response:
    """No status, an empty one and code OK all mean success."""

    status: RpcStatus | None = field(1, message_of(RpcStatus))
    payload: bytes = field(2, BYTES)
