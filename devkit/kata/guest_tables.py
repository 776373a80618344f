# SPDX-License-Identifier: Apache-2.0
"""The iptables of a fake guest: the real tools in a network namespace, or a fake in memory."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from devkit.fake_iptables import FakeIptables, RestoreRefusedError
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


class FakeTables:
    """Fake tools: `iptables` has the rules of each family.

    `tests/iptables_contract.py` runs against it and `NamespaceTables`.
    """

    def __init__(self) -> None:
        self.iptables = {family: FakeIptables() for family in Family}

    async def run(self, tool: str, arguments: Sequence[str], stdin: bytes) -> ToolResult:
        family = Family.IPV6 if tool.startswith("ip6") else Family.IPV4
        if tool.endswith("-save"):
            if arguments:
                return ToolResult(1, stderr=f"{tool}: unrecognized option '{arguments[0]}'\n")
            return ToolResult(0, self.save(family).encode())
        try:
            self.iptables[family].restore(stdin.decode(), noflush="--noflush" in arguments)
        except RestoreRefusedError as error:
            return ToolResult(1, stderr=f"{tool}: {error}\n")
        return ToolResult(0)

    def save(self, family: Family) -> str:
        """What iptables-save would print."""
        return self.iptables[family].save()

    def rules(self, family: Family, table: str, chain: str) -> tuple[str, ...]:
        """The rules of a chain, without `-A CHAIN `."""
        return tuple(self.iptables[family].tables[table][chain])

    def flush(self, family: Family, table: str, chain: str | None = None) -> None:
        """As `iptables -t TABLE -F [CHAIN]`: the chains stay, their rules go."""
        chains = self.iptables[family].tables[table]
        for name in [chain] if chain is not None else chains:
            chains[name].clear()

    def append(self, family: Family, table: str, chain: str, rule: str) -> None:
        """As `iptables -t TABLE -A CHAIN RULE`."""
        self.iptables[family].tables[table][chain].append(rule)
