# SPDX-License-Identifier: Apache-2.0
"""The messages of `guest.proto`, which documents them. A test compares both."""

from dataclasses import dataclass

from bridge_api.messages import Capabilities, Flow, Part, Ruleset
from bridge_api.methods import BidiStream
from daemonkit.protobuf import BOOL, STRING, UINT64, OpenEnum, enumeration, field, message_of, messages_of


class AgentResultCode(OpenEnum):
    CODE_UNSPECIFIED = 0
    DONE = 1
    UNCHANGED = 2
    NEEDS_FULL = 3
    REFUSED = 4
    FAILED = 5


@dataclass(frozen=True, slots=True)
class RulesetState:
    generation: int = field(1, UINT64)
    digest: str = field(2, STRING)
    has_drifted: bool = field(3, BOOL)


@dataclass(frozen=True, slots=True)
class AgentHello:
    sandbox: str = field(1, STRING)
    version: str = field(2, STRING)
    boot_id: str = field(3, STRING)
    capabilities: Capabilities | None = field(4, message_of(Capabilities))
    state: RulesetState | None = field(5, message_of(RulesetState))


@dataclass(frozen=True, slots=True)
class AgentResult:
    code: AgentResultCode = field(1, enumeration(AgentResultCode))
    message: str = field(2, STRING)
    state: RulesetState | None = field(3, message_of(RulesetState))


@dataclass(frozen=True, slots=True)
class InstalledParts:
    parts: tuple[Part, ...] = field(1, messages_of(Part))


@dataclass(frozen=True, slots=True)
class AgentMessage:
    request_id: int = field(1, UINT64)
    hello: AgentHello | None = field(2, message_of(AgentHello))
    result: AgentResult | None = field(3, message_of(AgentResult))
    state: RulesetState | None = field(4, message_of(RulesetState))
    installed: InstalledParts | None = field(5, message_of(InstalledParts))


@dataclass(frozen=True, slots=True)
class ApplyRuleset:
    ruleset: Ruleset | None = field(1, message_of(Ruleset))
    flush: tuple[Flow, ...] = field(2, messages_of(Flow))


@dataclass(frozen=True, slots=True)
class CheckDrift:
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
class NodeRequest:
    id: int = field(1, UINT64)
    apply: ApplyRuleset | None = field(2, message_of(ApplyRuleset))
    check_drift: CheckDrift | None = field(3, message_of(CheckDrift))
    read_back: ReadBack | None = field(4, message_of(ReadBack))
    flush_conntrack: FlushConntrack | None = field(5, message_of(FlushConntrack))
    write_resolv_conf: WriteResolvConf | None = field(6, message_of(WriteResolvConf))


ATTACH = BidiStream("vcnode.guest.v1.AgentService", "Attach", AgentMessage, NodeRequest)
