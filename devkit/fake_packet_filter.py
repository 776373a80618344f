# SPDX-License-Identifier: Apache-2.0
"""A packet filter without a kernel, for tests: understands `iptables-restore --noflush`.

It passes the tests that the real ones pass, as far as they are about chains and rules and not about
packets; the nft language it does not understand.
"""

from collections.abc import Iterable

from guest_agent.core.packet_filter import Broken, Change, Place, Refused
from ruleset.installed.rules import InstalledRules, read_installed
from ruleset.model import Family
from ruleset.names import Backend

_BUILT_IN = {
    "filter": ("INPUT", "FORWARD", "OUTPUT"),
    "nat": ("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"),
}

_Tables = dict[str, dict[str, list[str]]]


class FakePacketFilter:
    """Tables of both families. Tests reach into `tables` as a stranger would into the kernel.

    `missing` are the places that are not there, and why; a line that contains `refuses` is refused;
    `loads` are the texts that were loaded whole, `reads` the places whose rules were read.
    """

    def __init__(self) -> None:
        self.tables: dict[Family, _Tables] = {
            family: {table: {chain: [] for chain in chains} for table, chains in _BUILT_IN.items()}
            for family in Family
        }
        self.missing: dict[Place, str] = {(family, Backend.NFT): "no nft here" for family in Family}
        self.refuses = ""
        self.broken = ""
        self.loads: list[Change] = []
        self.reads: list[Place] = []

    @property
    def places(self) -> tuple[Place, ...]:
        every = ((family, backend) for backend in Backend for family in Family)
        return tuple(place for place in every if place not in self.missing)

    def why_not(self, place: Place) -> str:
        return self.missing.get(place, "")

    def load(self, change: Change) -> None:
        self._check()
        family, _ = change.place
        table = ""
        for number, line in enumerate(change.text.split("\n"), 1):
            if self.refuses and self.refuses in line:
                raise Refused(f"line {number} is {line!r}")
            if line.startswith("*"):
                table = line[1:]
                chains = {name: list(rules) for name, rules in self.tables[family][table].items()}
            elif line == "COMMIT":
                self.tables[family][table] = chains
            elif line:
                self._run(chains, number, line)
        self.loads.append(change)

    def held(self, place: Place) -> InstalledRules:
        self._check()
        self.reads.append(place)
        return read_installed(self.text(place[0]), *place)

    def glance(self, places: Iterable[Place]) -> object:
        return self.fingerprint(places)

    def fingerprint(self, places: Iterable[Place], *, is_changed: bool = False) -> str:
        self._check()
        return "\n".join(self.text(family) for family, _ in places)

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
        if self.broken:
            raise Broken(self.broken)

    @staticmethod
    def _run(chains: dict[str, list[str]], number: int, line: str) -> None:
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
            raise Refused(f"line {number} is {line!r}")
