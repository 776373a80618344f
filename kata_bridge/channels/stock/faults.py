# SPDX-License-Identifier: Apache-2.0
"""What a stock kata-agent means when an iptables call fails, told apart.

The one place that reads error texts of kata-agent, its policy engines, ttrpc and iptables. Pure. A
shim in Go hands on the agent's text in front of which ttrpc has put the code; the agent itself gives
code and text apart. Texts: kata-containers 2.5 to 3.x, iptables 1.8.9.
"""

import enum
import re
from dataclasses import dataclass

from kata_bridge.ttrpc.status import Code
from ruleset.model import Family


class Fault(enum.Enum):
    """Why a call failed. `TRANSIENT`: as it is now, not as it must stay. `UNCLEAR`: it says nothing."""

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


# What SetPolicy can repair, if anything can.
POLICY_FAULTS = frozenset({Fault.POLICY_DENIED, Fault.POLICY_UNDEFINED})

# What concerns one family alone: the other may work.
FAMILY_FAULTS = frozenset({Fault.NO_BINARY, Fault.NO_NF_TABLES, Fault.NO_TABLE, Fault.IPV6_SAVES})


class CallFailedError(Exception):
    """The far side answered, and the answer is an error. `code` is None where only the text came."""

    def __init__(self, code: Code | None, text: str) -> None:
        text = text[:MAX_TEXT_CHARACTERS]
        super().__init__(text)
        self.code = code
        self.text = text


class NoAnswerError(Exception):
    """The far side gave no answer; the text names the hop.

    `may_run`: the whole request went out and time ran out, so the guest may still be at it.
    """

    def __init__(self, text: str, *, may_run: bool = False) -> None:
        super().__init__(text[:MAX_TEXT_CHARACTERS])
        self.may_run = may_run


class NoEndpointError(NoAnswerError):
    """This shim has no such endpoint: it is older than the call, and will stay so."""


# A guest chooses its error texts, and ttrpc lets them have 4 MiB. What an agent and iptables print of
# an error is in the first lines; backtraces follow.
MAX_TEXT_CHARACTERS = 4_096

# status.Error of Go's grpc, which the shim in Go prints; the names are Go's.
_GO_STATUS = re.compile(r"rpc error: code = (\w{1,32}) desc = (.*+)", re.DOTALL)
_GO_CODES = {code.name.replace("_", "").lower(): code for code in Code}

_RAN = " failed: "  # the agent's words for a process that ended with an error, behind its path
_LINE = re.compile(r"\bline:? ([0-9]{1,7})\b")
_SHOWN_CHARACTERS = 300


def failure_of_text(text: str) -> CallFailedError:
    """Read the code back out of a text that has passed a shim in Go."""
    text = text[:MAX_TEXT_CHARACTERS]
    match = _GO_STATUS.search(text)
    if match is None:
        return CallFailedError(None, text)
    return CallFailedError(_GO_CODES.get(match[1].lower()), match[2])


def classify(failure: CallFailedError) -> Fault:
    """Tell which row of the table of errors this is.

    What iptables itself said comes first, whatever the code: its "No such file or directory" is a
    missing extension and not a missing binary.
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
    """What iptables printed, behind `.../iptables-restore failed: `; None if none was run."""
    begin = 0
    while (at := text.find(_RAN, begin)) >= 0:
        words = text[begin:at].rsplit(None, 1)
        if words and not text[at - 1].isspace() and "tables-" in words[-1][:-1]:
            return text[at + len(_RAN) :]
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
class Call:
    """Which call it was: for the words of an error."""

    message: str  # GetIPTablesRequest | SetIPTablesRequest
    family: Family


def explain(fault: Fault, call: Call, failure: CallFailedError, pushed: str = "") -> str:
    """Tell a person what is wrong and what would help.

    `pushed` is the text that was sent: of a refused rule the offending line is shown from it.
    """
    said = _short(failure.text)
    v6 = call.family is Family.IPV6
    tool = "ip6tables" if v6 else "iptables"
    match fault:
        case Fault.AGENT_TOO_OLD:
            return (
                f"the kata-agent in the guest image has no {call.message}: it is older than 2.5; "
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
                f"to it, see docs/guests.md; the agent says: {said}"
            )
        case Fault.POLICY_UNDEFINED:
            return (
                f"the guest's agent policy has no rule for {call.message}, which counts as refused: "
                f"add `default {call.message} := true` to it, see docs/guests.md"
            )
        case Fault.NO_BINARY:
            return f"the guest image has no {tool}: install iptables into it; the agent says: {said}"
        case Fault.NO_NF_TABLES:
            return (
                f"the guest image's {tool} is the nft variant and its kernel has no nf_tables: use the "
                f"legacy variant in the image, or a newer guest kernel; the guest says: {said}"
            )
        case Fault.NO_TABLE:
            return (
                f"the guest's kernel lacks a table that {tool} needs: use a newer guest kernel; "
                f"the guest says: {said}"
            )
        case Fault.IPV6_SAVES:
            return (
                "the kata-agent runs ip6tables-save where it should restore (kata-containers issue 11803): "
                "IPv6 rules need an agent with the fix of pull request 13789"
            )
        case Fault.RULE:
            return f"{tool} in the guest refused the rules: {said}{_offending(failure.text, pushed)}"
        case Fault.TOO_LARGE:
            return f"the rules are larger than one message to the agent may be: {said}"
        case Fault.TRANSIENT:
            return f"{tool} in the guest cannot be had now: {said}"
        case Fault.UNCLEAR:
            return f"{call.message} failed without a word that is known: {said or 'no text'}"


def _offending(text: str, pushed: str) -> str:
    match = _LINE.search(text)
    lines = pushed.splitlines()
    if match is None or not 0 < int(match[1]) <= len(lines):
        return ""
    return f"; line {match[1]} is: {lines[int(match[1]) - 1][:_SHOWN_CHARACTERS]}"


def _short(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= _SHOWN_CHARACTERS else plain[:_SHOWN_CHARACTERS] + "..."
