# SPDX-License-Identifier: Apache-2.0
"""A fake in memory of what `iptables-restore` and `iptables-save` do, for one family.

It knows tables, chains and jumps, but not the meaning of rules. `tests/iptables_contract.py` runs against it
and, in the lab ring, against the real tools.
"""

import copy
import re

_BUILT_IN = {
    "raw": ("PREROUTING", "OUTPUT"),
    "mangle": ("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"),
    "nat": ("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"),
    "filter": ("INPUT", "FORWARD", "OUTPUT"),
}
_TARGETS = frozenset({"ACCEPT", "DNAT", "DROP", "LOG", "MARK", "MASQUERADE", "REDIRECT", "REJECT", "RETURN"})
_JUMP = re.compile(r"(?:^| )-[jg] (\S+)")
_WEIGHT = re.compile(r"(?<=--probability )[0-9.]+")
_NAME_CHARACTERS = 28

_Chains = dict[str, list[str]]


class RestoreRefusedError(Exception):
    """`number` is that of the line that failed; `line` is its text, or the rule that a COMMIT refuses."""

    def __init__(self, number: int, line: str) -> None:
        super().__init__(f"line {number} failed")
        self.number = number
        self.line = line


class FakeIptables:
    """`tables` has the rules of each chain. Tests change them as another program would.

    A line that contains `refused` is refused.
    """

    def __init__(self) -> None:
        self.tables: dict[str, _Chains] = {table: _empty(table) for table in _BUILT_IN}
        self.refused = ""

    def restore(self, text: str, *, noflush: bool = True) -> None:
        """Change each table at its COMMIT, by a copy of it, or whole. Raises RestoreRefusedError."""
        table, chains = "", _Chains()
        lines = text.splitlines()
        for number, line in enumerate(lines, 1):
            if not line or line.startswith("#"):
                continue
            try:
                if self.refused and self.refused in line:
                    raise _BadLineError(line)
                if line == "COMMIT":
                    _check_commit(table, chains)
                    self.tables[table] = chains
                    table = ""
                elif table:
                    _execute(table, chains, line)
                else:
                    table = _begun(line)
                    chains = copy.deepcopy(self.tables[table]) if noflush else _empty(table)
            except _BadLineError as error:
                raise RestoreRefusedError(number, str(error)) from None
        if table:
            raise RestoreRefusedError(len(lines) + 1, "")

    def save(self) -> str:
        """What `iptables-save` prints: weights as the kernel rounds them, and no unused table."""
        lines = []
        for table, chains in self.tables.items():
            if chains != _empty(table):
                policies = {chain: "ACCEPT" if chain in _BUILT_IN[table] else "-" for chain in chains}
                lines += [f"*{table}", *(f":{chain} {policy} [0:0]" for chain, policy in policies.items())]
                lines += [f"-A {c} {_WEIGHT.sub(_kernel_weight, rule)}" for c in chains for rule in chains[c]]
                lines.append("COMMIT")
        return "".join(f"{line}\n" for line in lines)


class _BadLineError(Exception):
    pass


def _empty(table: str) -> _Chains:
    return {chain: [] for chain in _BUILT_IN[table]}


def _begun(line: str) -> str:
    name = line.removeprefix("*")
    if name == line or name not in _BUILT_IN:
        raise _BadLineError(line)
    return name


def _execute(table: str, chains: _Chains, line: str) -> None:
    command, _, rest = line.partition(" ")
    chain, _, rule = rest.partition(" ")
    is_declaration, name = command.startswith(":"), command[1:]
    if is_declaration and name in _BUILT_IN[table]:
        pass
    elif is_declaration and len(name) <= _NAME_CHARACTERS:
        chains[name] = []
    elif command == "-A" and chain in chains:
        chains[chain].append(rule)
    elif command == "-D" and rule in chains.get(chain, ()):
        chains[chain].remove(rule)
    elif command == "-X" and chains.get(chain) == [] and chain not in _jumps(chains):
        del chains[chain]
    else:
        raise _BadLineError(line)


def _check_commit(table: str, chains: _Chains) -> None:
    if not table:
        raise _BadLineError("COMMIT")
    for target, rule in _jumps(chains).items():
        if target not in chains and target not in _TARGETS:
            raise _BadLineError(rule)


def _jumps(chains: _Chains) -> dict[str, str]:
    """Where rules jump to, and one of the rules."""
    return {target: rule for rules in chains.values() for rule in rules for target in _JUMP.findall(rule)}


def _kernel_weight(found: re.Match[str]) -> str:
    return f"{int(float(found[0]) * (1 << 31) + 0.5) / (1 << 31):.11f}"
