# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from devkit.kata.agent_policy import (
    IPTABLES_RULES,
    OPENED_POLICY,
    STOCK_POLICY,
    PolicyEngine,
    PolicyVerdict,
    parse,
)


@pytest.mark.parametrize(
    ("text", "engine", "verdict"),
    [
        (STOCK_POLICY, PolicyEngine.REGORUS, PolicyVerdict.UNDEFINED),
        (STOCK_POLICY, PolicyEngine.OPA, PolicyVerdict.DENIED),
        (OPENED_POLICY, PolicyEngine.REGORUS, PolicyVerdict.ALLOWED),
        (OPENED_POLICY, PolicyEngine.OPA, PolicyVerdict.ALLOWED),
        (STOCK_POLICY + "default SetIPTablesRequest := false\n", PolicyEngine.REGORUS, PolicyVerdict.DENIED),
        (STOCK_POLICY + "default SetIPTablesRequest = true\n", PolicyEngine.REGORUS, PolicyVerdict.ALLOWED),
        (
            STOCK_POLICY + "# default SetIPTablesRequest := true\n",
            PolicyEngine.REGORUS,
            PolicyVerdict.UNDEFINED,
        ),
        (
            STOCK_POLICY + "default AllowRequestsFailingPolicy := true\n",
            PolicyEngine.REGORUS,
            PolicyVerdict.ALLOWED,
        ),
        ("package agent_policy\n", PolicyEngine.REGORUS, PolicyVerdict.UNDEFINED),
    ],
)
def test_a_policy_decides_on_setting_rules(text: str, engine: PolicyEngine, verdict: PolicyVerdict) -> None:
    assert parse(text, engine).verdict("SetIPTablesRequest") is verdict


@pytest.mark.parametrize("text", ["", "package other\n", "default SetIPTablesRequest := true\n"])
def test_an_invalid_policy_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="no package agent_policy"):
        parse(text)


def test_the_guide_has_the_rules_of_the_opened_policy() -> None:
    guide = Path(__file__).parents[4] / "docs" / "guests.md"

    assert IPTABLES_RULES in guide.read_text()
