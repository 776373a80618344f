# SPDX-License-Identifier: Apache-2.0
"""Rulesets and guests for each tool that installs rules."""

from __future__ import annotations

from kata_bridge.channels.agent.channel import AgentChannel
from ruleset.delta import RulesetDelta, difference
from ruleset.document import Ruleset, make_ruleset
from ruleset.model import Endpoint, EndpointSet, Family, Frontend, GuestRules, Protocol, ServiceRules
from ruleset.render import iptables, nft
from tests.lab.guest_agent.conftest import LabGuest, LabNode
from tests.lab.namespaces import LabNamespace

LEGACY, IPTABLES_NFT, NFT = "iptables-legacy", "iptables-nft", "nft"
TOOLS = (LEGACY, IPTABLES_NFT, NFT)
RENDER = {LEGACY: iptables.render, IPTABLES_NFT: iptables.render, NFT: nft.render}


def rules(pods: int, services: int = 3, family: Family = Family.IPV4) -> GuestRules:
    made = []
    for number in range(services):
        name = f"ns/svc{number}:http"
        four = family is Family.IPV4
        endpoints = tuple(
            Endpoint(f"10.1.{number}.{pod}" if four else f"fd00:{number + 1}::{pod}", 80)
            for pod in range(1, pods + 1)
        )
        ip = f"10.96.0.{number + 1}" if four else f"fd96::{number + 1}"
        frontend = Frontend(ip, 80, Protocol.TCP, name, EndpointSet(name, Protocol.TCP, False, endpoints))
        made.append(ServiceRules(f"ns/svc{number}", (frontend,)))
    return GuestRules(family, tuple(made), ("10.96.0.0/12",) if family is Family.IPV4 else ("fd96::/108",))


def ruleset(tool: str, generation: int, pods: int, *families: Family) -> Ruleset:
    parts = [RENDER[tool](rules(pods, family=family)) for family in families or (Family.IPV4,)]
    return make_ruleset(generation, parts)


def change(old: Ruleset, new: Ruleset) -> RulesetDelta:
    delta = difference(old, new)
    assert delta is not None
    return delta


def prepared(guest: LabGuest, tool: str) -> LabGuest:
    """Add a rule by this tool, as a mesh does. Our hooks must come after it."""
    if tool in (LEGACY, IPTABLES_NFT):
        guest.namespace.run(tool, "-t", "nat", "-A", "OUTPUT", "-d", "192.0.2.1", "-j", "ACCEPT")
    return guest


def installed(namespace: LabNamespace, tool: str) -> str:
    if tool == NFT:
        return namespace.run("nft", "list", "table", "ip", "vcnode")
    return namespace.run(f"{tool}-save")


async def attached(node: LabNode, guest: LabGuest, sandbox: str) -> AgentChannel:
    guest.start()
    return await node.channel(sandbox)
