# SPDX-License-Identifier: Apache-2.0
"""What is said of the canary, given what each of the three knows."""

from dataclasses import replace

import pytest

from kubeproxy_ext.compute.rules_probe import Canary, with_canary
from ruleset.document import Document
from ruleset.model import Frontend, Protocol, ServiceRules
from ruleset.render.iptables import render as iptables
from tests.unit.vcnode.test_explain_report import (
    CAPTURES,
    OLD,
    OLD_TEXT,
    RULES,
    SHOP,
    SUBJECT,
    TARGET,
    WANTED,
    digest,
    to,
)
from vcnode.explain_report import Filter, Report, State, render, report

CANARY = "192.0.2.61"
WITH_CANARY = with_canary(RULES, Canary(CANARY, None, 10561))
OLD_CANARY = with_canary(OLD, Canary(CANARY, None, 10561))
CANARY_TEXT, OLD_CANARY_TEXT = iptables(WITH_CANARY), iptables(OLD_CANARY)
WANTED_CANARY = replace(WANTED, rules=WITH_CANARY, digest=digest(CANARY_TEXT))
FOR = (
    f"{CANARY}:10561 is the canary: it leads a guest to its own loopback while rules of ours are in, and is "
    "what the init container of packaging/canary waits for"
)


def of_canary(held: Document | None, given: Document | str, said_digest: str, port: int = 10561) -> Report:
    subject = replace(SUBJECT, digest=said_digest)
    if isinstance(given, str):
        return report(subject, to(CANARY, port), WANTED_CANARY, given)
    return report(subject, to(CANARY, port), WANTED_CANARY, Filter((held,) if held else (), (given,)))


def test_the_canary_of_the_current_generation() -> None:
    said = of_canary(CANARY_TEXT, CANARY_TEXT, digest(CANARY_TEXT))
    assert said.is_good
    assert said.notes == (FOR, "the guest has the current generation, 7: whoever waits for it is let go")
    lines = render(said)
    assert lines[1] == "-> goes to 127.0.0.1:10561, as it should"
    assert "        tcp 192.0.2.61:10561 belongs to Service port -/canary" in lines


def test_the_canary_answers_in_an_older_generation_too() -> None:
    said = of_canary(OLD_CANARY_TEXT, CANARY_TEXT, digest(OLD_CANARY_TEXT))
    assert (said.state, said.agrees) == (State.BEHIND, True)
    assert said.notes == (
        FOR,
        "the guest has not the current generation, but rules that have the canary:"
        " whoever waits for it is let go",
    )


@pytest.mark.parametrize("held", [None, OLD_TEXT])
def test_without_its_rule_the_canary_is_waited_for(held: Document | None) -> None:
    said = of_canary(held, CANARY_TEXT, digest(CANARY_TEXT))
    assert not said.is_good
    assert said.notes == (
        FOR,
        "the guest has not the current generation, and no rule for the canary:"
        " whoever waits for it still waits",
    )


def test_where_the_guest_cannot_be_asked_nobody_knows_of_its_canary() -> None:
    said = of_canary(None, "kata-bridge: it is away", digest(CANARY_TEXT))
    assert said.notes == (FOR, "whether it is in the guest is not known")


def test_another_port_of_the_canary() -> None:
    said = of_canary(CANARY_TEXT, CANARY_TEXT, digest(CANARY_TEXT), port=80)
    assert said.notes == (f"{CANARY} is the address of the canary, with 10561/tcp alone",)


def test_what_a_service_has_is_no_canary() -> None:
    has_it = (*CAPTURES, Frontend(CANARY, 10561, Protocol.TCP, SHOP, TARGET))
    rules = with_canary(
        replace(RULES, services=(ServiceRules("vc-a-web/shop", has_it),)), Canary(CANARY, None, 10561)
    )
    text = iptables(rules)
    wanted = replace(WANTED, rules=rules, digest=digest(text))
    said = report(replace(SUBJECT, digest=digest(text)), to(CANARY, 10561), wanted, Filter((text,), (text,)))
    assert (said.is_good, said.notes) == (True, ())
