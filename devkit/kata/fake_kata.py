# SPDX-License-Identifier: Apache-2.0
"""A fake of one whole stock Kata guest: agent, VMM and shim, connected as the real ones are."""

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self

from devkit.kata.fake_agent import AgentQuirks, FakeAgent
from devkit.kata.fake_shim import FakeShim, Flavour
from devkit.kata.fake_vmm import FakeVmm
from devkit.kata.guest_tables import IptablesTools

AGENT_PORT = 1024


class FakeKata:
    """One guest and its shim below `directory`; `async with` starts them.

    `roots` are the directories of shims, Go's first; this guest's shim is in one of them. `is_hybrid`: the
    shim reports the agent's hybrid vsock instead of its socket. Keep `directory` short: socket paths end at
    107 bytes.
    """

    def __init__(
        self,
        directory: Path,
        tables: IptablesTools,
        *,
        flavour: Flavour = Flavour.GO,
        sandbox_id: str = "sandbox-1",
        quirks: AgentQuirks | None = None,
        is_hybrid: bool = False,
        is_booting: bool = False,
    ) -> None:
        self.sandbox_id = sandbox_id
        self.roots = (directory / "sbs", directory / "kata")
        self.quirks = quirks if quirks is not None else AgentQuirks()
        self.agent = FakeAgent(directory / f"{sandbox_id}.agent", tables, self.quirks)
        self.vmm = FakeVmm(directory / f"{sandbox_id}.vmm", {AGENT_PORT: self.agent.path})
        self.shim = FakeShim(
            self.roots[flavour is Flavour.RUST],
            sandbox_id,
            self.agent.path,
            self.vmm.url if is_hybrid else self.agent.url,
            flavour,
            is_booting,
        )
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        try:
            for part in (self.agent, self.vmm, self.shim):
                await self._stack.enter_async_context(part)
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()
