# SPDX-License-Identifier: Apache-2.0
"""Classifies the errors of iptables calls at a stock kata-agent (docs/spec/kata.md#errors). Pure.

The only module that matches error texts of kata-agent, its policy engines, ttrpc and iptables. A shim in Go
passes on the agent's text, with the code in front; the agent itself returns code and text apart. Texts are
those of kata-containers 2.5 to 3.x and iptables 1.8.9.
"""

import enum
import re
from dataclasses import dataclass

from kata_bridge.ttrpc.status import Code
from ruleset.model import Family


class Fault(enum.Enum):
    """Why a call failed. `TRANSIENT`: the next try may succeed. `UNCLEAR`: the text is unknown."""

    AGENT_TOO_OLD = enum.auto()
    ENDPOINT_BLOCKED = enum.auto()
    POLICY_DENIED = enum.auto()
    POLICY_UNDEFINED = enum.auto()
    NO_BINARY = enum.auto()
    NO_NF_TABLES = enum.auto()
    NO_TABLE = enum.auto()
    IPV6_SAVES = enum.auto()
    RULE = enum.auto()
    TOO_LARGE = enum.auto()
    TRANSIENT = enum.auto()
    UNCLEAR = enum.auto()


# Those that SetPolicy may repair.
POLICY_FAULTS = frozenset({Fault.POLICY_DENIED, Fault.POLICY_UNDEFINED})

# Those of one family: the other may work.
FAMILY_FAULTS = frozenset({Fault.NO_BINARY, Fault.NO_NF_TABLES, Fault.NO_TABLE, Fault.IPV6_SAVES})


class CallFailedError(Exception):
    """The peer answered with an error. `code` is None where it returned a text alone."""

    def __init__(self, code: Code | None, text: str) -> None:
        text = text[:MAX_STOCK_TEXT_CHARACTERS]
        super().__init__(text)
        self.code = code
        self.text = text


class NoAnswerError(Exception):
    """The peer gave no answer; the text names the hop.

    `may_run`: the whole request was sent before the deadline, so the guest may still be running it.
    """

    def __init__(self, text: str, *, may_run: bool = False) -> None:
        super().__init__(text[:MAX_STOCK_TEXT_CHARACTERS])
        self.may_run = may_run


class NoEndpointError(NoAnswerError):
    """The shim is too old for this call."""


# A guest chooses its error texts, and ttrpc allows 4 MiB. The first lines have the error of the agent or of
# iptables; backtraces follow.
MAX_STOCK_TEXT_CHARACTERS = 4_096

# status.Error of Go's grpc, as the shim in Go prints it, with Go's names.
_GO_STATUS = re.compile(r"rpc error: code = (\w{1,32}) desc = (.*+)", re.DOTALL)
_GO_CODES = {code.name.replace("_", "").lower(): code for code in Code}

_FAILED = " failed: "  # the agent prints it between the path of a process and its stderr
_LINE = re.compile(r"\bline:? ([0-9]{1,7})\b")
_SHOWN_CHARACTERS = 300


def failure_of_text(text: str) -> CallFailedError:
    """Split a text that a shim in Go passed on into code and text."""
    text = text[:MAX_STOCK_TEXT_CHARACTERS]
    match = _GO_STATUS.search(text)
    if match is None:
        return CallFailedError(None, text)
    return CallFailedError(_GO_CODES.get(match[1].lower()), match[2])


def classify(failure: CallFailedError) -> Fault:
    """Classify a failure. The stderr of iptables comes first, whatever the code.

    Its "No such file or directory" means that the image or the guest kernel lacks a match or target (`RULE`),
    not that the program is missing.
    """
    text = failure.text
    stderr = _stderr(text)
    if stderr is not None:
        return _of_iptables(stderr)
    match failure.code:
        case Code.PERMISSION_DENIED:
            return Fault.POLICY_DENIED
        case Code.UNIMPLEMENTED | Code.NOT_FOUND:
            return Fault.ENDPOINT_BLOCKED if "is blocked" in text else Fault.AGENT_TOO_OLD
        case Code.RESOURCE_EXHAUSTED:
            return Fault.TOO_LARGE
        case Code.DEADLINE_EXCEEDED | Code.UNAVAILABLE:
            return Fault.TRANSIENT
    return _of_text(text)


def _stderr(text: str) -> str | None:
    """The stderr of iptables, behind `.../iptables-restore failed: `; None if it was not run."""
    begin = 0
    while (at := text.find(_FAILED, begin)) >= 0:
        words = text[begin:at].rsplit(None, 1)
        if words and not text[at - 1].isspace() and "tables-" in words[-1][:-1]:
            return text[at + len(_FAILED) :]
        begin = at + 1
    return None


def _of_text(text: str) -> Fault:
    rows = (
        ("blocked by policy", Fault.POLICY_DENIED),
        ("internal error policy check", Fault.POLICY_UNDEFINED),
        ("is blocked", Fault.ENDPOINT_BLOCKED),
        ("Tables method", Fault.AGENT_TOO_OLD),
        ("Tables is not supported", Fault.AGENT_TOO_OLD),
        ("message length", Fault.TOO_LARGE),
        ("timeout waiting for stdin writer", Fault.TRANSIENT),
        ("No such file or directory", Fault.NO_BINARY),
        ("(os error 2)", Fault.NO_BINARY),
    )
    return next((fault for part, fault in rows if part in text), Fault.UNCLEAR)


def _of_iptables(stderr: str) -> Fault:
    if "unrecognized option" in stderr and "-save" in stderr:
        return Fault.IPV6_SAVES
    rows = (
        ("fetch rule set generation id", Fault.NO_NF_TABLES),
        ("Failed to initialize nft", Fault.NO_NF_TABLES),
        ("unable to initialize table", Fault.NO_TABLE),
        ("can't initialize", Fault.NO_TABLE),
        ("Table does not exist", Fault.NO_TABLE),
        ("xtables lock", Fault.TRANSIENT),
    )
    return next((fault for part, fault in rows if part in stderr), Fault.RULE)


@dataclass(frozen=True, slots=True)
class StockCall:
    """The call that an error is about."""

    message: str  # GetIPTablesRequest | SetIPTablesRequest
    family: Family


def explain(fault: Fault, call: StockCall, failure: CallFailedError, pushed: str = "") -> str:
    """The message for a person: what is wrong, and the remedy.

    `pushed` is the text that was sent: the message of a refused rule quotes the offending line.
    """
    text = _short(failure.text)
    v6 = call.family is Family.IPV6
    tool = "ip6tables" if v6 else "iptables"
    match fault:
        case Fault.AGENT_TOO_OLD:
            return (
                f"the kata-agent in the guest image does not support {call.message}: it is older than 2.5; "
                "use a guest image of Kata 2.5 or newer"
            )
        case Fault.ENDPOINT_BLOCKED:
            return (
                f"the kata-agent's configuration blocks {call.message}: add it to `allowed` of "
                "[endpoints] in the guest's agent configuration, or drop that list"
            )
        case Fault.POLICY_DENIED:
            return (
                f"the guest's agent policy denies {call.message}: add `default {call.message} := true` "
                f"to it, see docs/guests.md; the kata-agent reported: {text}"
            )
        case Fault.POLICY_UNDEFINED:
            return (
                f"the guest's agent policy has no rule for {call.message}, which denies the call: "
                f"add `default {call.message} := true` to it, see docs/guests.md"
            )
        case Fault.NO_BINARY:
            return f"the guest image lacks {tool}: install iptables into it; the kata-agent reported: {text}"
        case Fault.NO_NF_TABLES:
            return (
                f"the guest image's {tool} is the nft variant, but the guest kernel lacks nf_tables: use the "
                f"legacy variant in the image, or a newer guest kernel; the guest reported: {text}"
            )
        case Fault.NO_TABLE:
            return (
                f"the guest's kernel lacks a table that {tool} needs: use a newer guest kernel; "
                f"the guest reported: {text}"
            )
        case Fault.IPV6_SAVES:
            return (
                "the kata-agent runs ip6tables-save where it should restore (kata-containers issue 11803): "
                "IPv6 rules need a kata-agent with the fix of pull request 13789"
            )
        case Fault.RULE:
            return f"{tool} in the guest refused the rules: {text}{_offending(failure.text, pushed)}"
        case Fault.TOO_LARGE:
            return f"the rules exceed the largest message to the kata-agent (4 MiB): {text}"
        case Fault.TRANSIENT:
            return f"{tool} in the guest is not available now; trying again: {text}"
        case Fault.UNCLEAR:
            return f"{call.message} failed with an unknown error: {text or 'no message'}"


def _offending(text: str, pushed: str) -> str:
    match = _LINE.search(text)
    lines = pushed.splitlines()
    if match is None or not 0 < int(match[1]) <= len(lines):
        return ""
    return f"; line {match[1]} is: {lines[int(match[1]) - 1][:_SHOWN_CHARACTERS]}"


def _short(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= _SHOWN_CHARACTERS else plain[:_SHOWN_CHARACTERS] + "..."
