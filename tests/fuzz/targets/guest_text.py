# SPDX-License-Identifier: Apache-2.0
"""Texts of guests: saves and lists of packet filters, and errors of agents, shims and iptables.

The readers take any text: they raise nothing, their work is linear, and what they keep is bounded.
"""

from guest_agent.core.filter_errors import filter_error, renumber_lines
from guest_agent.core.packet_filter import FilterUnavailableError, RulesRefusedError
from kata_bridge.channels import guest_text
from kata_bridge.channels.stock.faults import (
    MAX_STOCK_TEXT_CHARACTERS,
    StockCall,
    classify,
    explain,
    failure_of_text,
)
from kata_bridge.channels.stock.hybrid_vsock import is_accepted
from ruleset.document import BadDocument, parse
from ruleset.installed.rules import InstalledRules, expected, read_installed, state_digest
from ruleset.installed.save_parser import MAX_LINE_CHARACTERS
from ruleset.model import Family
from ruleset.names import Backend
from tests.fuzz.invariants import only
from tests.fuzz.target import FuzzTarget

_PUSHED = "*nat\n:VCN-A - [0:0]\n-A VCN-A -j RETURN\nCOMMIT\n"


def check(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    read = [read_installed(text, Family.IPV4, backend) for backend in Backend]
    for installed in read:
        _check_installed(installed, text)
    assert state_digest(read) == state_digest(reversed(read))
    _check_errors(text)
    assert len(guest_text.word(text)) <= guest_text.MAX_WORD_CHARACTERS
    assert guest_text.word(text).isascii()
    assert guest_text.sentence(text).isprintable()
    is_accepted(data)


def _check_installed(installed: InstalledRules, text: str) -> None:
    lines = [line for part in installed.objects.values() for line in part]
    if installed.backend is Backend.IPTABLES:
        # Weights are written anew with ten digits.
        assert all(len(line) <= MAX_LINE_CHARACTERS + 12 * line.count("--probability ") for line in lines)
    assert sum(map(len, lines)) <= 2 * len(text) + 24 * text.count("--probability ")
    document = only(BadDocument, parse, text, Family.IPV4, installed.backend)
    if document is not None and document.objects and not installed.shadowed:
        # A text of ours is read as after its application.
        assert installed.objects.keys() >= expected(document).objects.keys()


def _check_errors(text: str) -> None:
    failure = failure_of_text(text)
    assert len(failure.text) <= MAX_STOCK_TEXT_CHARACTERS
    for family in Family:
        fault = classify(failure)
        message = explain(fault, StockCall("SetIPTablesRequest", family), failure, _PUSHED)
        assert len(message) <= 1000
    error = filter_error("iptables-restore", _PUSHED, text, 1)
    assert isinstance(error, RulesRefusedError | FilterUnavailableError)
    renumber_lines(text, 2)


TARGET = FuzzTarget(
    check,
    seeds=(
        b"*nat\n:OUTPUT ACCEPT [1:2]\n:VCN-SERVICES - [0:0]\n[5:60] -A OUTPUT -j VCN-SERVICES\n"
        b"-A VCN-SERVICES -m statistic --mode random --probability 0.33333333349 -j VCN-A\nCOMMIT\n",
        b'*filter\n:VCN-A - [0:0]\n-A OUTPUT -m comment --comment "a \\" -j VCN-A" -j ACCEPT\n'
        b"-A OUTPUT -j VCN-A\nCOMMIT\n",
        b"table ip vcnode {\n\tset cidrs {\n\t\ttype ipv4_addr\n\t\tflags interval\n"
        b"\t\telements = { 10.0.0.1 . 6 . 80, 10.0.0.2 }\n\t}\n\tchain nat-output {\n"
        b"\t\tmeta l4proto 6 accept\n\t}\n}\n",
        b"rpc error: code = Internal desc = /usr/sbin/iptables-restore failed: iptables-restore: "
        b"line 3 failed\n",
        b"/usr/bin/ip6tables-save failed: unrecognized option --x; ip6tables-save",
        b"/dev/stdin:12:5-10: Error: No such file or directory\n^^^",
        b"OK 1073741824\n",
    ),
    tokens=(
        *(
            b"\n",
            b'"',
            b"\\",
            b'\\"',
            b"*nat\n",
            b"*filter\n",
            b"COMMIT\n",
            b":VCN-X - [0:0]\n",
            b"-A OUTPUT ",
            b"-j VCN-",
        ),
        *(
            b" -g VCN-B",
            b"[1:1] ",
            b"--probability ",
            b"0.5",
            b"1e-9",
            b"....",
            b"tables-",
            b" failed: ",
            b"tables-x failed: ",
        ),
        *(
            b"rpc error: code = ",
            b" desc = ",
            b"line 3",
            b"line: 9999999",
            b"elements = {",
            b"}",
            b" . 17 . ",
            b"l4proto {6, 17}",
        ),
        *(
            b"l4proto { 6",
            b"flags dynamic",
            b"table ip vcnode {\n",
            b"\tchain x {\n",
            b"\t}\n",
            b"\xc2\x85",
            b"\xe2\x80\xa8",
            b"\x1c",
        ),
        *(b":1:2-3: ", b"a" * 300, b"--probability 0.", b"0" * 40),
    ),
    max_bytes=4096,
)
