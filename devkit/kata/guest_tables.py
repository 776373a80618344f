# SPDX-License-Identifier: Apache-2.0
"""The iptables of a fake guest: the real tools in a network namespace, or a fake in memory."""

import asyncio
import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ruleset.model import Family

_RUN_DEADLINE_S = 60.0


@dataclass(frozen=True, slots=True)
class ToolResult:
    code: int
    stdout: bytes = b""
    stderr: str = ""


class IptablesTools(Protocol):
    """Runs `iptables-save`, `iptables-restore` and their ip6tables twins in a guest."""

    async def run(self, tool: str, arguments: Sequence[str], stdin: bytes) -> ToolResult: ...


class NamespaceTables:
    """Runs the real tools in the network namespace at the path `namespace`; needs root.

    `variant` is `legacy` or `nft`: a guest image has one of them. `environment` is that of the tools; a guest
    has a lock of its own, here by XTABLES_LOCKFILE.
    """

    def __init__(
        self, namespace: Path, variant: str = "nft", environment: Mapping[str, str] | None = None
    ) -> None:
        self.namespace = namespace
        self.variant = variant
        self._environment = environment

    async def run(self, tool: str, arguments: Sequence[str], stdin: bytes) -> ToolResult:
        family, _, action = tool.partition("-")
        process = await asyncio.create_subprocess_exec(
            "nsenter",
            f"--net={self.namespace}",
            "setpriv",
            "--pdeathsig",
            "KILL",
            f"{family}-{self.variant}-{action}",
            *arguments,
            env=self._environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(_RUN_DEADLINE_S):
                stdout, stderr = await process.communicate(stdin)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):  # it has already ended
                process.kill()
            await process.wait()
            raise
        return ToolResult(process.returncode or 0, stdout, stderr.decode("utf-8", "replace"))


_BUILT_IN = {
    "raw": ("PREROUTING", "OUTPUT"),
    "mangle": ("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"),
    "nat": ("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"),
    "filter": ("INPUT", "FORWARD", "OUTPUT"),
}
_VERDICTS = frozenset({"ACCEPT", "DROP", "RETURN", "DNAT", "MARK", "MASQUERADE", "REDIRECT", "REJECT"})
_CHAIN = re.compile(r":(\S{1,28}) (ACCEPT|DROP|-)(?: \[\d+:\d+\])?")
_RULE = re.compile(r"-A (\S++)(.*+)")
_TARGET = re.compile(r" -[jg] (\S+)")


class _BadLineError(Exception):
    def __init__(self, number: int) -> None:
        super().__init__(f"line {number} failed")


@dataclass(slots=True)
class _Table:
    policies: dict[str, str] = field(default_factory=dict)
    rules: dict[str, list[str]] = field(default_factory=dict)

    def lines(self, name: str) -> list[str]:
        counters = (f":{chain} {policy} [0:0]" for chain, policy in self.policies.items())
        rules = (f"-A {chain}{rest}" for chain, rests in self.rules.items() for rest in rests)
        return [f"*{name}", *counters, *rules, "COMMIT"]


class FakeTables:
    """Fake tools that keep tables in memory, and print rules as they were restored.

    As iptables-restore without `--noflush`, a named table is replaced whole at its COMMIT, and a faulty line
    leaves it unchanged. The fake knows tables, chains and jumps, but not the meaning of rules. The lab ring
    replays one history on it and on the real tools.
    """

    def __init__(self) -> None:
        self._tables: dict[Family, dict[str, _Table]] = {family: {} for family in Family}

    async def run(self, tool: str, arguments: Sequence[str], stdin: bytes) -> ToolResult:
        family = Family.IPV6 if tool.startswith("ip6") else Family.IPV4
        if tool.endswith("-save"):
            if arguments:
                return ToolResult(1, stderr=f"{tool}: unrecognized option '{arguments[0]}'\n")
            return ToolResult(0, self.save(family).encode())
        try:
            self._restore(family, stdin.decode())
        except _BadLineError as error:
            return ToolResult(1, stderr=f"{tool}: {error}\n")
        return ToolResult(0)

    def save(self, family: Family) -> str:
        """What iptables-save would print."""
        tables = self._tables[family]
        lines = [line for name, table in tables.items() for line in table.lines(name)]
        return "".join(f"{line}\n" for line in lines)

    def rules(self, family: Family, table: str, chain: str) -> tuple[str, ...]:
        """The rules of a chain, without `-A CHAIN `."""
        return tuple(rule.removeprefix(" ") for rule in self._tables[family][table].rules[chain])

    def flush(self, family: Family, table: str, chain: str | None = None) -> None:
        """As `iptables -t TABLE -F [CHAIN]`: the chains stay, their rules go."""
        rules = self._tables[family][table].rules
        for name in [chain] if chain is not None else list(rules):
            rules[name] = []

    def append(self, family: Family, table: str, chain: str, rule: str) -> None:
        """As `iptables -t TABLE -A CHAIN RULE`."""
        self._tables[family][table].rules[chain].append(f" {rule}")

    def _restore(self, family: Family, text: str) -> None:
        name, new = "", _Table()
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip() or line.startswith("#"):
                continue
            if line == "COMMIT":
                self._commit(family, name, new, number)
                name = ""
            elif not name:
                name, new = _begun(line, number)
            else:
                _add(new, line, number)
        if name:
            raise _BadLineError(len(text.splitlines()) + 1)

    def _commit(self, family: Family, name: str, new: _Table, number: int) -> None:
        targets = (_TARGET.search(rest) for rests in new.rules.values() for rest in rests)
        known = _VERDICTS.union(new.policies)
        if not name or any(target is not None and target[1] not in known for target in targets):
            raise _BadLineError(number)
        self._tables[family][name] = new


def _begun(line: str, number: int) -> tuple[str, _Table]:
    name = line.removeprefix("*")
    if name == line or name not in _BUILT_IN:
        raise _BadLineError(number)
    chains = _BUILT_IN[name]
    return name, _Table(dict.fromkeys(chains, "ACCEPT"), {chain: [] for chain in chains})


def _add(table: _Table, line: str, number: int) -> None:
    if chain := _CHAIN.fullmatch(line):
        table.policies[chain[1]] = chain[2]
        table.rules.setdefault(chain[1], [])
    elif (rule := _RULE.fullmatch(line)) and rule[1] in table.rules:
        table.rules[rule[1]].append(rule[2])
    else:
        raise _BadLineError(number)
