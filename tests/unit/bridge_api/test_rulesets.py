# SPDX-License-Identifier: Apache-2.0
import zlib
from dataclasses import replace
from typing import Any

import pytest

from bridge_api import messages
from bridge_api.messages import Part
from bridge_api.rulesets import (
    DEFLATE_FROM_BYTES,
    MAX_TEXT_BYTES,
    BadRuleset,
    from_message,
    to_message,
)
from ruleset.delta import apply_delta, difference
from ruleset.document import Document, Ruleset, make_ruleset
from ruleset.model import Family
from ruleset.names import Backend


def _ruleset(generation: int, services: int) -> Ruleset:
    rules = tuple(
        f"-d 10.0.{n // 256}.{n % 256}/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.1.0.1:8080"
        for n in range(services)
    )
    objects = {"nat/VCN-SERVICES": rules, "nat/OUTPUT": ("-j VCN-SERVICES",)}
    return make_ruleset(generation, (Document(Family.IPV4, Backend.IPTABLES, objects),))


SMALL, LARGE = _ruleset(1, 2), _ruleset(2, 2000)


@pytest.mark.parametrize("ruleset", [SMALL, LARGE, make_ruleset(3, ())])
def test_a_ruleset_survives_encoding(ruleset: Ruleset) -> None:
    assert from_message(to_message(ruleset)) == ruleset


def test_only_large_texts_are_deflated() -> None:
    (part,) = to_message(LARGE).parts
    assert part.deflated_from == len(LARGE.documents[0].text()) > 10 * len(part.text)
    (part,) = to_message(SMALL).parts
    assert (part.text.decode(), part.deflated_from) == (SMALL.documents[0].text(), 0)
    assert len(part.text) < DEFLATE_FROM_BYTES


def test_a_delta_survives_encoding() -> None:
    delta = difference(SMALL, LARGE)
    assert delta is not None
    again = from_message(to_message(delta))
    assert again == delta
    assert apply_delta(SMALL, delta) == LARGE


PART = to_message(SMALL).parts[0]


def _with(**changes: Any) -> messages.Ruleset:
    return replace(to_message(SMALL), **changes)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (_with(digest=""), "a ruleset without a digest"),
        (_with(digest="00" * 32), "the digest is .* not the declared 0000000000000000"),
        (_with(parts=(PART,) * 5), "more than 4 parts"),
        (_with(parts=(PART,) * 2), "two parts for one family and backend"),
        (_with(base_digest="x"), "both parts and a base"),
        (_with(parts=(), deltas=(messages.PartDelta("ipv4", "iptables", b"- x\n"),)), "deltas without"),
        (_with(parts=(replace(PART, family="ipx"),)), "unknown family or backend: 'ipx' 'iptables'"),
        (_with(parts=(replace(PART, text=b"\xff"),)), "ipv4 iptables: not UTF-8"),
        (_with(parts=(replace(PART, text=b"*nat\n-A KUBE-X -j RETURN\nCOMMIT\n"),)), "ipv4 iptables: "),
        (_with(parts=(replace(PART, deflated_from=9),)), "cannot be inflated"),
        (
            _with(parts=(Part("ipv4", "iptables", zlib.compress(b"x" * 10_000_000), 100),)),
            "not of its declared size",
        ),
        (_with(parts=(Part("ipv4", "iptables", zlib.compress(b"x"), 100),)), "not of its declared size"),
        (_with(parts=(Part("ipv4", "iptables", b"x", MAX_TEXT_BYTES + 1),)), "larger than"),
    ],
)
def test_an_invalid_ruleset_is_rejected(message: messages.Ruleset, why: str) -> None:
    with pytest.raises(BadRuleset, match=why):
        from_message(message)
