# SPDX-License-Identifier: Apache-2.0
"""As much of a kata-agent's policy as decides over whole requests: `default <Request> := true`.

Rego in full is the agent's business. Engines differ in what a missing rule means: regorus (agents
since 3.5) fails the evaluation, OPA (3.3 and 3.4) refuses. Pure.
"""

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass

_RULE = re.compile(r"^default (\w+) *:?= *(true|false)$", re.MULTILINE)
_LENIENT = "AllowRequestsFailingPolicy"

# What the default policy of stock images answers, as far as the requests of the fake go: it has
# no rule for either iptables request.
STOCK_POLICY = """package agent_policy

default CopyFileRequest := true
default CreateSandboxRequest := true
default ExecProcessRequest := true
default GuestDetailsRequest := true
default SetPolicyRequest := true
default UpdateRoutesRequest := true
"""

IPTABLES_RULES = """default GetIPTablesRequest := true
default SetIPTablesRequest := true
"""

# The stock policy with what docs/guests.md tells to add to it.
OPENED_POLICY = STOCK_POLICY + IPTABLES_RULES


class PolicyEngine(enum.Enum):
    REGORUS = "regorus"
    OPA = "opa"


class Verdict(enum.Enum):
    ALLOWED = enum.auto()
    DENIED = enum.auto()
    UNDEFINED = enum.auto()


@dataclass(frozen=True, slots=True)
class Policy:
    """One policy text as an engine understands it; setting another replaces all of it."""

    rules: Mapping[str, bool]
    engine: PolicyEngine = PolicyEngine.REGORUS

    def verdict(self, request: str) -> Verdict:
        """Decide over a request message by its name."""
        allowed = self.rules.get(request)
        if allowed or self.rules.get(_LENIENT):
            return Verdict.ALLOWED
        if allowed is None and self.engine is PolicyEngine.REGORUS:
            return Verdict.UNDEFINED
        return Verdict.DENIED


def parse(text: str, engine: PolicyEngine = PolicyEngine.REGORUS) -> Policy:
    """Read the rules of a text; raises `ValueError` for one that is no agent policy."""
    if not re.search(r"^package agent_policy$", text, re.MULTILINE):
        raise ValueError("no package agent_policy")
    return Policy({name: value == "true" for name, value in _RULE.findall(text)}, engine)
