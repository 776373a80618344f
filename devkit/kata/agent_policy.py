# SPDX-License-Identifier: Apache-2.0
"""The part of a kata-agent's policy that decides on whole requests: `default <Request> := true`.

Engines differ in a missing rule (docs/spec/kata.md#agent-policy): regorus (agents since 3.5) fails the
evaluation, OPA (3.3 and 3.4) refuses.
"""

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass

_RULE = re.compile(r"^default (\w+) *:?= *(true|false)$", re.MULTILINE)
_LENIENT = "AllowRequestsFailingPolicy"

# The default policy of stock images, for the requests of the fake agent: it lacks both iptables requests.
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

# The stock policy with the rules that docs/guests.md adds.
OPENED_POLICY = STOCK_POLICY + IPTABLES_RULES


class PolicyEngine(enum.Enum):
    REGORUS = "regorus"
    OPA = "opa"


class PolicyVerdict(enum.Enum):
    ALLOWED = enum.auto()
    DENIED = enum.auto()
    UNDEFINED = enum.auto()


@dataclass(frozen=True, slots=True)
class AgentPolicy:
    """One policy text as an engine evaluates it; another one replaces all of it."""

    rules: Mapping[str, bool]
    engine: PolicyEngine = PolicyEngine.REGORUS

    def verdict(self, request: str) -> PolicyVerdict:
        """Decide on a request by the name of its message."""
        allowed = self.rules.get(request)
        if allowed or self.rules.get(_LENIENT):
            return PolicyVerdict.ALLOWED
        if allowed is None and self.engine is PolicyEngine.REGORUS:
            return PolicyVerdict.UNDEFINED
        return PolicyVerdict.DENIED


def parse(text: str, engine: PolicyEngine = PolicyEngine.REGORUS) -> AgentPolicy:
    """Read the rules of a text; raises `ValueError` for a text that is not an agent policy."""
    if not re.search(r"^package agent_policy$", text, re.MULTILINE):
        raise ValueError("no package agent_policy")
    return AgentPolicy({name: value == "true" for name, value in _RULE.findall(text)}, engine)
