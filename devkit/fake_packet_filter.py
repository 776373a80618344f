# SPDX-License-Identifier: Apache-2.0
"""A fake `PacketFilter` in memory, which understands `iptables-restore --noflush`.

`tests/packet_filter_contract.py` runs against it and, in the lab ring, against the kernel's packet
filters. It models chains and rules, but no packets, and not the language of nft.
"""

from collections.abc import Iterable

from guest_agent.core.packet_filter import (
    FilterKey,
    FilterUnavailableError,
    RestoreScript,
    RulesRefusedError,
)
from ruleset.installed.rules import InstalledRules, read_installed
from ruleset.model import Family
from ruleset.names import Backend

_BUILT_IN = {
    "filter": ("INPUT", "FORWARD", "OUTPUT"),
    "nat": ("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"),
}

_Tables = dict[str, dict[str, list[str]]]


class FakePacketFilter:
    """Tables of both families. Tests change `tables` as another program would.

    `missing` has the packet filters that do not work, and why. A line that contains `refused` is
    refused. `loaded` has the scripts that were loaded, `reads` the keys that were read.
    """

    def __init__(self) -> None:
        self.tables: dict[Family, _Tables] = {
            family: {table: {chain: [] for chain in chains} for table, chains in _BUILT_IN.items()}
            for family in Family
        }
        self.missing: dict[FilterKey, str] = {(family, Backend.NFT): "no nft here" for family in Family}
        self.refused = ""
        self.unavailable = ""
        self.loaded: list[RestoreScript] = []
        self.reads: list[FilterKey] = []

    @property
    def supported(self) -> tuple[FilterKey, ...]:
        every = ((family, backend) for backend in Backend for family in Family)
        return tuple(key for key in every if key not in self.missing)

    def unsupported_message(self, key: FilterKey) -> str:
        return self.missing.get(key, "")

    def load(self, script: RestoreScript) -> None:
        self._check()
        family, _ = script.key
        table = ""
        for number, line in enumerate(script.text.split("\n"), 1):
            if self.refused and self.refused in line:
                raise RulesRefusedError(f"line {number} is {line!r}")
            if line.startswith("*"):
                table = line[1:]
                chains = {name: list(rules) for name, rules in self.tables[family][table].items()}
            elif line == "COMMIT":
                _check_jumps(chains)
                self.tables[family][table] = chains
            elif line:
                _execute(chains, number, line)
        self.loaded.append(script)

    def read(self, key: FilterKey) -> InstalledRules:
        self._check()
        self.reads.append(key)
        return read_installed(self.text(key[0]), *key)

    def quick_fingerprint(self, keys: Iterable[FilterKey]) -> object:
        return self.fingerprint(keys)

    def fingerprint(self, keys: Iterable[FilterKey], *, is_changed: bool = False) -> str:
        self._check()
        return "\n".join(self.text(family) for family, _ in keys)

    def text(self, family: Family) -> str:
        """What `iptables-save` would print."""
        lines: list[str] = []
        for table, chains in sorted(self.tables[family].items()):
            lines.append(f"*{table}")
            lines += (f":{chain} {'ACCEPT' if chain in _BUILT_IN[table] else '-'} [0:0]" for chain in chains)
            lines += (f"-A {chain} {rule}" for chain, rules in chains.items() for rule in rules)
            lines.append("COMMIT")
        return "".join(f"{line}\n" for line in lines)

    def _check(self) -> None:
        if self.unavailable:
            raise FilterUnavailableError(self.unavailable)


def _execute(chains: dict[str, list[str]], number: int, line: str) -> None:
    command, _, rest = line.partition(" ")
    chain, _, rule = rest.partition(" ")
    if line.startswith(":"):
        chains[command[1:]] = []
    elif command == "-A" and chain in chains:
        chains[chain].append(rule)
    elif command == "-D" and rule in chains.get(chain, ()):
        chains[chain].remove(rule)
    elif command == "-X" and chains.get(chain) == []:
        del chains[chain]
    else:
        raise RulesRefusedError(f"line {number} is {line!r}")


def _check_jumps(chains: dict[str, list[str]]) -> None:
    """Refuse jumps to chains of ours that do not exist, as the kernel does."""
    for rules in chains.values():
        for rule in rules:
            target = rule.rpartition("-j ")[2].split(" ")[0]
            if target.startswith("VCN-") and target not in chains:
                raise RulesRefusedError(f"a rule jumps to {target}, which does not exist: {rule!r}")
