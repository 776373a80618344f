# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from devkit.kata.agent_policy import (
    IPTABLES_RULES,
    OPENED_POLICY,
    STOCK_POLICY,
    Engine,
    Verdict,
    parse,
)


@pytest.mark.parametrize(
    ("text", "engine", "verdict"),
    [
        (STOCK_POLICY, Engine.REGORUS, Verdict.UNDEFINED),
        (STOCK_POLICY, Engine.OPA, Verdict.DENIED),
        (OPENED_POLICY, Engine.REGORUS, Verdict.ALLOWED),
        (OPENED_POLICY, Engine.OPA, Verdict.ALLOWED),
        (STOCK_POLICY + "default SetIPTablesRequest := false\n", Engine.REGORUS, Verdict.DENIED),
        (STOCK_POLICY + "default SetIPTablesRequest = true\n", Engine.REGORUS, Verdict.ALLOWED),
        (STOCK_POLICY + "# default SetIPTablesRequest := true\n", Engine.REGORUS, Verdict.UNDEFINED),
        (STOCK_POLICY + "default AllowRequestsFailingPolicy := true\n", Engine.REGORUS, Verdict.ALLOWED),
        ("package agent_policy\n", Engine.REGORUS, Verdict.UNDEFINED),
    ],
)
def test_what_a_policy_says_of_a_push(text: str, engine: Engine, verdict: Verdict) -> None:
    assert parse(text, engine).verdict("SetIPTablesRequest") is verdict


@pytest.mark.parametrize("text", ["", "package other\n", "default SetIPTablesRequest := true\n"])
def test_what_is_no_policy_of_an_agent(text: str) -> None:
    with pytest.raises(ValueError, match="no package agent_policy"):
        parse(text)


def test_the_guide_names_the_rules_that_open_the_stock_policy() -> None:
    guide = Path(__file__).parents[4] / "docs" / "guests.md"

    assert IPTABLES_RULES in guide.read_text()
