# SPDX-License-Identifier: Apache-2.0
"""The messages of `guest.proto`, which says what they mean; a test holds the two together."""

from dataclasses import dataclass

from bridge_api.messages import Capabilities, Flow, Part, Ruleset
from bridge_api.methods import BidiStream
from daemonkit.protobuf import BOOL, STRING, UINT64, OpenEnum, enumeration, field, message_of, messages_of


class OutcomeCode(OpenEnum):
    CODE_UNSPECIFIED = 0
    DONE = 1
    UNCHANGED = 2
    NEEDS_FULL = 3
    REFUSED = 4
    FAILED = 5


@dataclass(frozen=True, slots=True)
class State:
    generation: int = field(1, UINT64)
    digest: str = field(2, STRING)
    has_drifted: bool = field(3, BOOL)


@dataclass(frozen=True, slots=True)
class Hello:
    sandbox: str = field(1, STRING)
    version: str = field(2, STRING)
    boot_id: str = field(3, STRING)
    capabilities: Capabilities | None = field(4, message_of(Capabilities))
    state: State | None = field(5, message_of(State))


@dataclass(frozen=True, slots=True)
class Outcome:
    code: OutcomeCode = field(1, enumeration(OutcomeCode))
    message: str = field(2, STRING)
    state: State | None = field(3, message_of(State))


@dataclass(frozen=True, slots=True)
class HeldRules:
    parts: tuple[Part, ...] = field(1, messages_of(Part))


@dataclass(frozen=True, slots=True)
class FromGuest:
    answers: int = field(1, UINT64)
    hello: Hello | None = field(2, message_of(Hello))
    outcome: Outcome | None = field(3, message_of(Outcome))
    state: State | None = field(4, message_of(State))
    held: HeldRules | None = field(5, message_of(HeldRules))


@dataclass(frozen=True, slots=True)
class Apply:
    ruleset: Ruleset | None = field(1, message_of(Ruleset))
    flush: tuple[Flow, ...] = field(2, messages_of(Flow))


@dataclass(frozen=True, slots=True)
class Check:
    pass


@dataclass(frozen=True, slots=True)
class ReadBack:
    pass


@dataclass(frozen=True, slots=True)
class FlushConntrack:
    flows: tuple[Flow, ...] = field(1, messages_of(Flow))


@dataclass(frozen=True, slots=True)
class WriteResolvConf:
    text: str = field(1, STRING)


@dataclass(frozen=True, slots=True)
class ToGuest:
    id: int = field(1, UINT64)
    apply: Apply | None = field(2, message_of(Apply))
    check: Check | None = field(3, message_of(Check))
    read_back: ReadBack | None = field(4, message_of(ReadBack))
    flush_conntrack: FlushConntrack | None = field(5, message_of(FlushConntrack))
    write_resolv_conf: WriteResolvConf | None = field(6, message_of(WriteResolvConf))


ATTACH = BidiStream("vcnode.guest.v1.GuestLink", "Attach", FromGuest, ToGuest)
