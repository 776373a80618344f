# SPDX-License-Identifier: Apache-2.0
"""Whether a text of iptables rules is consistent in itself (service-proxy.md 5.2)."""

from collections import Counter

from ruleset.iptables.rule_text import BUILT_IN, Table, read_tables

_DECLARES = (":", "-N ")
# The targets that are no chains: iptables-extensions(8).
_TARGETS = frozenset(
    """ACCEPT AUDIT CHECKSUM CLASSIFY CONNMARK CONNSECMARK CT DNAT DROP DSCP ECN HL HMARK IDLETIMER LED LOG
    MARK MASQUERADE NETMAP NFLOG NFQUEUE NOTRACK QUEUE RATEEST REDIRECT REJECT RETURN SECMARK SET SNAT
    SYNPROXY TCPMSS TCPOPTSTRIP TEE TOS TPROXY TRACE TTL ULOG""".split()  # noqa: SIM905 - a table of words
)


def problems(text: str, *, may_be_unused: str = "VCN-MARK-") -> tuple[str, ...]:
    """Everything that is wrong with `text`, in words; empty if nothing is.

    A chain must be declared once before its first rule, every jump must lead to a declared chain,
    every declared chain that is not built in must be jumped to (but those whose name begins with
    `may_be_unused`), and no chain may have the same rule twice.
    """
    found = _declarations(text)
    for name, table in read_tables(text).items():
        found += _jumps(name, table, may_be_unused)
        for chain_name, chain in table.items():
            for rule, count in Counter(rule.text for rule in chain.rules).items():
                if count > 1:
                    found.append(f"{name} {chain_name}: {count} times the rule {rule!r}")
    return tuple(found)


def _declarations(text: str) -> list[str]:
    found = []
    table, declared = "", set[str]()
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        words = line.split()
        if line.startswith("*"):
            table, declared = line[1:], set(BUILT_IN)
        elif line.startswith(_DECLARES):
            chain = words[0][1:] if line[0] == ":" else words[1]
            if chain in declared - BUILT_IN:
                found.append(f"line {number}: {table} {chain} is declared again")
            declared.add(chain)
        elif "-A" in words[:2]:
            chain = words[words.index("-A") + 1]
            if chain not in declared:
                found.append(f"line {number}: a rule of {table} {chain}, which is not declared")
                declared.add(chain)
    return found


def _jumps(name: str, table: Table, may_be_unused: str) -> list[str]:
    found = []
    used = set(BUILT_IN)
    for chain_name, chain in table.items():
        for number, rule in enumerate(chain.rules, 1):
            used.add(rule.target)
            if rule.target and rule.target not in table and rule.target not in _TARGETS:
                found.append(f"{name} {chain_name} {number}: a jump to {rule.target}, which is not declared")
    found += [
        f"{name} {chain}: declared, and no rule jumps to it"
        for chain in table
        if chain not in used and not chain.startswith(may_be_unused)
    ]
    return found
