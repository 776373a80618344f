# SPDX-License-Identifier: Apache-2.0
"""The messages of `bridge.proto`, which documents them. A test compares both."""

from dataclasses import dataclass

from daemonkit.protobuf import (
    BOOL,
    BYTES,
    STRING,
    UINT32,
    UINT64,
    OpenEnum,
    enumeration,
    field,
    message_of,
    messages_of,
    repeated,
)


class GuestEventKind(OpenEnum):
    KIND_UNSPECIFIED = 0
    PRESENT = 1
    GONE = 2
    SYNCED = 3


class ResultCode(OpenEnum):
    CODE_UNSPECIFIED = 0
    APPLIED = 1
    UNCHANGED = 2
    NEEDS_FULL = 3
    REFUSED = 4
    UNREACHABLE = 5
    GONE = 6
    NOT_INJECTABLE = 7
    DRIFTED = 8
    SUPERSEDED = 9


@dataclass(frozen=True, slots=True)
class WatchGuestsRequest:
    pass


@dataclass(frozen=True, slots=True)
class Capabilities:
    channel: str = field(1, STRING)
    backends: tuple[str, ...] = field(2, repeated(STRING))
    ipv6: bool = field(3, BOOL)
    deltas: bool = field(4, BOOL)
    conntrack: bool = field(5, BOOL)
    resolv_conf: bool = field(6, BOOL)
    version: str = field(7, STRING)
    ipv6_message: str = field(8, STRING)


@dataclass(frozen=True, slots=True)
class Guest:
    id: str = field(1, STRING)
    namespace: str = field(2, STRING)
    name: str = field(3, STRING)
    uid: str = field(4, STRING)
    tenant: str = field(5, STRING)
    networks: tuple[str, ...] = field(6, repeated(STRING))
    ips: tuple[str, ...] = field(7, repeated(STRING))
    runtime_handler: str = field(8, STRING)
    capabilities: Capabilities | None = field(9, message_of(Capabilities))
    generation: int = field(10, UINT64)
    digest: str = field(11, STRING)
    not_injectable: str = field(12, STRING)
    tenant_namespace: str = field(13, STRING)
    tenant_name: str = field(14, STRING)


@dataclass(frozen=True, slots=True)
class GuestEvent:
    kind: GuestEventKind = field(1, enumeration(GuestEventKind))
    guest: Guest | None = field(2, message_of(Guest))


@dataclass(frozen=True, slots=True)
class Part:
    family: str = field(1, STRING)
    backend: str = field(2, STRING)
    text: bytes = field(3, BYTES)
    deflated_from: int = field(4, UINT64)


@dataclass(frozen=True, slots=True)
class PartDelta:
    family: str = field(1, STRING)
    backend: str = field(2, STRING)
    text: bytes = field(3, BYTES)
    deflated_from: int = field(4, UINT64)


@dataclass(frozen=True, slots=True)
class Ruleset:
    generation: int = field(1, UINT64)
    digest: str = field(2, STRING)
    parts: tuple[Part, ...] = field(3, messages_of(Part))
    base_digest: str = field(4, STRING)
    deltas: tuple[PartDelta, ...] = field(5, messages_of(PartDelta))


@dataclass(frozen=True, slots=True)
class Flow:
    protocol: str = field(1, STRING)
    destination: str = field(2, STRING)
    port: int = field(3, UINT32)
    reply_source: str = field(4, STRING)
    reply_port: int = field(5, UINT32)
    never_translated: bool = field(6, BOOL)
    keep_replies_from: tuple[str, ...] = field(7, repeated(STRING))


@dataclass(frozen=True, slots=True)
class SetRulesetRequest:
    guests: tuple[str, ...] = field(1, repeated(STRING))
    ruleset: Ruleset | None = field(2, message_of(Ruleset))
    flush: tuple[Flow, ...] = field(3, messages_of(Flow))


@dataclass(frozen=True, slots=True)
class GuestResult:
    guest: str = field(1, STRING)
    code: ResultCode = field(2, enumeration(ResultCode))
    message: str = field(3, STRING)
    generation: int = field(4, UINT64)
    digest: str = field(5, STRING)


@dataclass(frozen=True, slots=True)
class SetResolvConfRequest:
    guest: str = field(1, STRING)
    text: str = field(2, STRING)
    wait_message: str = field(3, STRING)
    pod_uid: str = field(4, STRING)
    networks: tuple[str, ...] = field(5, repeated(STRING))


@dataclass(frozen=True, slots=True)
class ReadBackRequest:
    guest: str = field(1, STRING)


@dataclass(frozen=True, slots=True)
class ReadBackReply:
    result: GuestResult | None = field(1, message_of(GuestResult))
    installed: tuple[Part, ...] = field(2, messages_of(Part))
    desired: tuple[Part, ...] = field(3, messages_of(Part))


@dataclass(frozen=True, slots=True)
class CheckDriftRequest:
    guests: tuple[str, ...] = field(1, repeated(STRING))


@dataclass(frozen=True, slots=True)
class FlushConntrackRequest:
    guests: tuple[str, ...] = field(1, repeated(STRING))
    flows: tuple[Flow, ...] = field(2, messages_of(Flow))
