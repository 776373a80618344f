# SPDX-License-Identifier: Apache-2.0
"""The table of errors of a stock agent: code and text in, fault and message out."""

import pytest

from kata_bridge.channels.stock.faults import (
    MAX_STOCK_TEXT_CHARACTERS,
    CallFailedError,
    Fault,
    NoAnswerError,
    StockCall,
    classify,
    explain,
    failure_of_text,
)
from kata_bridge.ttrpc.status import Code
from ruleset.model import Family

SET = StockCall("SetIPTablesRequest", Family.IPV4)
SET6 = StockCall("SetIPTablesRequest", Family.IPV6)

# Texts of iptables are what 1.8.9 prints, legacy and nft; see tests/lab for those made anew.
TABLE = [
    (Code.UNIMPLEMENTED, "SetIPTables method", Fault.AGENT_TOO_OLD),
    (Code.NOT_FOUND, "/grpc.AgentService/SetIPTables is not supported", Fault.AGENT_TOO_OLD),
    (Code.UNIMPLEMENTED, "SetIPTablesRequest is blocked", Fault.ENDPOINT_BLOCKED),
    (Code.PERMISSION_DENIED, "SetIPTablesRequest is blocked by policy: ", Fault.POLICY_DENIED),
    (Code.PERMISSION_DENIED, "the explanation alone, as newest builds have it", Fault.POLICY_DENIED),
    (
        Code.INTERNAL,
        "SetIPTablesRequest: internal error policy check: unexpected eval_query result len 0",
        Fault.POLICY_UNDEFINED,
    ),
    (Code.INTERNAL, "No such file or directory (os error 2)", Fault.NO_BINARY),
    (
        Code.INTERNAL,
        "/sbin/iptables-restore failed: iptables-restore v1.8.7 (nf_tables): "
        "Could not fetch rule set generation id: Invalid argument\n",
        Fault.NO_NF_TABLES,
    ),
    (
        Code.INTERNAL,
        "/sbin/iptables-restore failed: iptables-restore v1.8.9 (legacy): "
        "iptables-restore: unable to initialize table 'nat'\n\nError occurred at line: 1\n",
        Fault.NO_TABLE,
    ),
    (
        Code.INTERNAL,
        "/usr/sbin/ip6tables-save failed: ip6tables-save: unrecognized option '--wait'\n"
        "Look at manual page `ip6tables-save.8' for more information.\n",
        Fault.IPV6_SAVES,
    ),
    (
        Code.INTERNAL,
        "/sbin/iptables-restore failed: iptables-restore v1.8.9 (legacy): "
        "host/network `999.1.1.1' not found\nError occurred at line: 3\n",
        Fault.RULE,
    ),
    (Code.INTERNAL, "/sbin/iptables-restore failed: iptables-restore: line 5 failed\n", Fault.RULE),
    (
        # An extension that is missing is a rule that cannot be had, not a missing binary.
        Code.INTERNAL,
        "/sbin/iptables-restore failed: iptables-restore v1.8.9 (nf_tables): "
        "Couldn't load match `recent':No such file or directory\n\nError occurred at line: 3\n",
        Fault.RULE,
    ),
    (
        Code.INTERNAL,
        "/sbin/iptables-restore failed: Another app is currently holding the xtables lock; "
        "still 0s 0us time ahead to have a chance to grab the lock...\n",
        Fault.TRANSIENT,
    ),
    (Code.INTERNAL, "timeout waiting for stdin writer to complete", Fault.TRANSIENT),
    (Code.DEADLINE_EXCEEDED, "timeout", Fault.TRANSIENT),
    (Code.UNAVAILABLE, "connection refused", Fault.TRANSIENT),
    (
        Code.RESOURCE_EXHAUSTED,
        "message length 5000000 exceed maximum message size of 4194304",
        Fault.TOO_LARGE,
    ),
    (Code.INVALID_ARGUMENT, "message length 5000000 exceed maximum message size of 4194304", Fault.TOO_LARGE),
    (Code.INTERNAL, "an error of a later version", Fault.UNCLEAR),
    (Code.UNKNOWN, "", Fault.UNCLEAR),
]
_NAMES = [f"{code.name}-{fault.name}-{number}" for number, (code, _, fault) in enumerate(TABLE)]


@pytest.mark.parametrize(("code", "text", "fault"), TABLE, ids=_NAMES)
def test_fault_of_a_code_and_a_text(code: Code, text: str, fault: Fault) -> None:
    assert classify(CallFailedError(code, text)) is fault


@pytest.mark.parametrize(("code", "text", "fault"), TABLE, ids=_NAMES)
def test_fault_through_a_shim_in_go(code: Code, text: str, fault: Fault) -> None:
    name = "".join(word.capitalize() for word in code.name.split("_"))
    failure = failure_of_text(f"rpc error: code = {name} desc = {text}")

    assert (failure.code, failure.text) == (code, text)
    assert classify(failure) is fault


# A fault that only a code identifies is unclear without it.
_NEEDS_CODE = {
    "the explanation alone, as newest builds have it",
    "timeout",
    "connection refused",
}


@pytest.mark.parametrize(("code", "text", "fault"), TABLE, ids=_NAMES)
def test_fault_of_a_text_alone(code: Code, text: str, fault: Fault) -> None:
    expected = Fault.UNCLEAR if text in _NEEDS_CODE else fault

    assert classify(failure_of_text(text)) is expected


def test_unknown_code_of_go_leaves_the_text() -> None:
    failure = failure_of_text("rpc error: code = Aborted desc = SetIPTablesRequest is blocked by policy: ")

    assert (failure.code, classify(failure)) == (None, Fault.POLICY_DENIED)


def test_each_fault_has_a_message_of_its_own() -> None:
    messages = {fault: explain(fault, SET, CallFailedError(code, text)) for code, text, fault in TABLE}

    assert set(messages) == set(Fault)
    assert len(set(messages.values())) == len(messages)
    assert all(len(text) < 700 and "\n" not in text for text in messages.values())


def test_policy_fault_names_the_missing_rule() -> None:
    failure = CallFailedError(Code.INTERNAL, "internal error policy check")

    assert explain(Fault.POLICY_UNDEFINED, SET, failure) == (
        "the guest's agent policy has no rule for SetIPTablesRequest, which denies the call: "
        "add `default SetIPTablesRequest := true` to it, see docs/guests.md"
    )


PUSHED = "*nat\n:VCN-SERVICES - [0:0]\n-A VCN-SERVICES -d 999.1.1.1 -j RETURN\nCOMMIT\n"


@pytest.mark.parametrize(
    "stderr",
    [
        "iptables-restore v1.8.9 (legacy): host/network `999.1.1.1' not found\nError occurred at line: 3\n",
        "iptables-restore v1.8.9 (nf_tables): \nline 3: RULE_APPEND failed (Invalid argument)",
        "iptables-restore: line 3 failed",
    ],
)
def test_refused_rule_is_quoted(stderr: str) -> None:
    failure = CallFailedError(Code.INTERNAL, f"/sbin/iptables-restore failed: {stderr}")

    text = explain(Fault.RULE, SET, failure, PUSHED)

    assert text.startswith("iptables in the guest refused the rules: /sbin/iptables-restore failed: ")
    assert text.endswith("; line 3 is: -A VCN-SERVICES -d 999.1.1.1 -j RETURN")


@pytest.mark.parametrize("stderr", ["line 0 failed", "line 99999 failed", "no number"])
def test_line_that_was_not_sent_is_not_quoted(stderr: str) -> None:
    failure = CallFailedError(Code.INTERNAL, f"/sbin/ip6tables-restore failed: {stderr}")

    assert explain(Fault.RULE, SET6, failure, PUSHED) == (
        f"ip6tables in the guest refused the rules: /sbin/ip6tables-restore failed: {stderr}"
    )


def test_message_is_cut() -> None:
    failure = CallFailedError(Code.INTERNAL, "x" * 100_000)

    assert len(explain(Fault.UNCLEAR, SET, failure)) < 400


@pytest.mark.parametrize(
    "text",
    [
        "tables-" * 4_000,  # the word in front of ` failed: ` was looked for from each letter
        "rpc error: code = " * 2_000,
        "line " + "9" * 30_000,
        " failed: " * 4_000,
        "x" * (4 << 20),
    ],
)
@pytest.mark.parametrize("code", [None, Code.INTERNAL])
def test_hostile_text_is_cut_before_it_is_matched(text: str, code: Code | None) -> None:
    failure = failure_of_text(text) if code is None else CallFailedError(code, text)
    assert len(failure.text) <= MAX_STOCK_TEXT_CHARACTERS
    explanation = explain(classify(failure), SET, failure, "*nat\nCOMMIT\n")
    assert len(explanation) < 1_000


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("/sbin/iptables-restore failed: xtables lock", Fault.TRANSIENT),
        ("first failed: then /sbin/ip6tables-restore failed: Table does not exist", Fault.NO_TABLE),
        ("tables- failed: No such file or directory", Fault.NO_BINARY),
        ("iptables-restore  failed: No such file or directory", Fault.NO_BINARY),
        ("failed: No such file or directory", Fault.NO_BINARY),
    ],
)
def test_stderr_of_iptables_follows_its_path(text: str, fault: Fault) -> None:
    assert classify(CallFailedError(Code.INTERNAL, text)) is fault


def test_message_of_a_missing_response_is_cut() -> None:
    assert len(str(NoAnswerError("x" * 100_000))) == MAX_STOCK_TEXT_CHARACTERS
