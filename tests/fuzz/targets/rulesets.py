# SPDX-License-Identifier: Apache-2.0
"""Rulesets and deltas of another daemon: a round trip changes nothing of what is accepted, all "
"within our tables."""

import zlib
from dataclasses import replace

from bridge_api.messages import Part, PartDelta
from bridge_api.messages import Ruleset as RulesetMessage
from bridge_api.rulesets import BadRuleset, from_message, from_part, to_message, to_part
from ruleset.delta import BaseMismatch, apply_document_delta, document_difference, parse_delta
from ruleset.document import BadDocument, Document, Ruleset, make_ruleset, parse
from ruleset.model import Family
from ruleset.names import NFT_TABLE, Backend, is_our_chain
from ruleset.syntax.iptables import HOOKS
from tests.fuzz.invariants import only
from tests.fuzz.target import FuzzTarget

_NAT = (
    "*filter\n:VCN-REJECT - [0:0]\n-A OUTPUT -j VCN-REJECT\nCOMMIT\n*nat\n:VCN-A - [0:0]\n"
    ":VCN-SERVICES - [0:0]\n"
    "-A OUTPUT -j VCN-SERVICES\n-A VCN-A -p tcp -m statistic --mode random --probability "
    "0.5000000000 -j VCN-A\n"
    "-A VCN-A -p tcp -j DNAT --to-destination 10.0.0.1:80\n"
    "-A VCN-SERVICES -d 10.1.0.1/32 -p tcp -j VCN-A\nCOMMIT\n"
)
_NFT = (
    "add table ip vcnode\ndelete table ip vcnode\ntable ip vcnode {\n\tmap services {\n"
    "\t\ttype ipv4_addr . inet_proto . inet_service : verdict\n\t\telements = {\n"
    "\t\t\t10.1.0.1 . tcp . 80 : goto svc-a,\n\t\t\t10.1.0.2 . udp . 53 : goto svc-a,\n\t\t}\n\t}\n"
    "\tchain nat-output {\n\t\ttype nat hook output priority -100; policy accept;\n"
    "\t\tip daddr . meta l4proto . th dport vmap @services\n\t}\n\tchain svc-a {\n"
    "\t\tdnat to 10.0.0.1:80\n\t}\n}\n"
)
_DELTA = (
    "- nat/VCN-A\n= nat/VCN-B\n+ -j RETURN\n~ nat/VCN-SERVICES\n@ 0 1\n"
    "+ -d 10.1.0.2/32 -j VCN-B\n@ 3 0\n+ -j RETURN\n"
)


def check(data: bytes) -> None:
    if data[:1] == b"\x00":
        _check_message(data[1:])
        return
    text = data.decode("utf-8", "replace")
    for family, backend in (
        (Family.IPV4, Backend.IPTABLES),
        (Family.IPV4, Backend.NFT),
        (Family.IPV6, Backend.NFT),
    ):
        document = only(BadDocument, parse, text, family, backend)
        if document is not None:
            _check_document(document)
        delta = only(BadDocument, parse_delta, text, family, backend)
        if delta is not None:
            assert parse_delta(delta.text(), family, backend) == delta
            for base in _BASES[backend]:
                changed = only((BaseMismatch, BadDocument), apply_document_delta, base, delta)
                if changed is not None:
                    _check_names(changed)


def _check_document(document: Document) -> None:
    text = document.text()
    assert parse(text, document.family, document.backend) == document
    assert parse(text, document.family, document.backend).text() == text
    _check_names(document)
    part = to_part(document)
    assert from_part(part) == document
    for each in _BASES[document.backend]:
        base = replace(each, family=document.family)
        delta = document_difference(base, document)
        assert (
            apply_document_delta(base, parse_delta(delta.text(), document.family, document.backend))
            == document
        )
    message = to_message(make_ruleset(3, [document]))
    again = from_message(message)
    assert isinstance(again, Ruleset)
    assert to_message(again) == message


def _check_names(document: Document) -> None:
    """The document names our chains, hooks and table alone."""
    if document.backend is Backend.IPTABLES:
        assert all(name in HOOKS or is_our_chain(name.partition("/")[2]) for name in document.objects)
        for line in document.text().split("\n"):
            assert line[:1] in ("", "*", ":", "C", "-")
            assert line.isascii()
    else:
        lines = document.text().split("\n")
        assert NFT_TABLE in lines[0]
        assert sum(line.startswith(("table ", "add ", "delete ")) for line in lines) == 3


def _check_message(data: bytes) -> None:
    """The bytes of a part, deflated and not, with sizes that are true and not."""
    size = int.from_bytes(data[:2])
    for text, declared in ((data[2:], 0), (data[2:], size), (zlib.compress(data[2:], 1), len(data[2:]))):
        for backend in Backend:
            part = Part("ipv4", backend.value, text, declared)
            only(BadRuleset, from_part, part)
            message = RulesetMessage(1, "d", (part,), "", ())
            assert only(BadRuleset, from_message, message) is None
            delta = PartDelta("ipv4", backend.value, text, declared)
            only(BadRuleset, from_message, RulesetMessage(1, "d", (), "b", (delta,)))


_BASES = {
    Backend.IPTABLES: (
        Document(Family.IPV4, Backend.IPTABLES, {}),
        parse(_NAT, Family.IPV4, Backend.IPTABLES),
    ),
    Backend.NFT: (Document(Family.IPV4, Backend.NFT, {}), parse(_NFT, Family.IPV4, Backend.NFT)),
}
TARGET = FuzzTarget(
    check,
    seeds=(
        _NAT.encode(),
        _NFT.encode(),
        _NFT.replace("ip vcnode", "ip6 vcnode").encode(),
        _DELTA.encode(),
        b"= chain svc-a\n+ accept\n~ map services\n@ 1 1\n+ 10.1.0.3 . tcp . 80 : goto svc-a\n",
        b"\x00\x00\x00" + _NAT.encode(),
        b"\x00\x00\x20" + zlib.compress(b"= chain svc-a\n+ accept\n", 1),
    ),
    tokens=(
        *(
            b"\n",
            b"\t",
            b" ",
            b"*nat\n",
            b"*filter\n",
            b"*raw\n",
            b"COMMIT\n",
            b":VCN-B - [0:0]\n",
            b":OUTPUT - [0:0]\n",
        ),
        *(
            b"-A VCN-A -j RETURN\n",
            b"-A OUTPUT -j ACCEPT\n",
            b"-A INPUT ",
            b"--modprobe",
            b"! ",
            b"-j VCN-X",
            b"\\",
            b'"',
        ),
        *(
            b"\tset s {\n",
            b"\tmap m {\n",
            b"\tchain c {\n",
            b"\t}\n",
            b"\t\telements = {\n",
            b"\t\t}\n",
            b"\t\t\t1.1.1.1,\n",
        ),
        *(
            b"\t\ttype ipv4_addr\n",
            b"\t\t\ttype x,\n",
            b"}\n",
            b"{ ",
            b" }",
            b";",
            b"include",
            b"$",
            b"#",
            b"@",
            b",",
            b"\r",
        ),
        *(
            b"- nat/VCN-SERVICES\n",
            b"= nat/OUTPUT\n",
            b"~ nat/VCN-A\n",
            b"@ 0 0\n",
            b"@ 1 2\n",
            b"+ ",
            b"@ 999999999 1\n",
        ),
    ),
)
