# SPDX-License-Identifier: Apache-2.0
"""The kernels that guests run, and how to read and disturb the rules in each.

Debian's has legacy iptables and no usable nft; the one of `build.py` has both, so that guests use nft.
Debian's ends at the first program on a processor with AMX, whose state it has no room for: there the other
one, without its nf_tables, stands for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ruleset.names import Backend


@dataclass(frozen=True, slots=True)
class GuestKernel:
    """A User-mode Linux; `backend` is the agents' choice in it, `arguments` are more of its command line."""

    program: Path
    backend: Backend
    arguments: tuple[str, ...] = ()

    @property
    def rules(self) -> tuple[str, ...]:
        """The command that prints all rules of a guest."""
        return ("nft", "list", "ruleset") if self.backend is Backend.NFT else ("iptables-legacy-save",)


DEBIAN = GuestKernel(Path("/usr/bin/linux.uml"), Backend.IPTABLES)
_WITHOUT_NFT = ("initcall_blacklist=nf_tables_module_init",)


def can_run_debians(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether Debian's kernel has room for the state of this machine's processors."""
    return "amx_tile" not in cpuinfo.read_text(encoding="ascii", errors="replace").split()


def legacy(built: Path | None) -> GuestKernel:
    """Debian's, or in its place the one that `build.py` made; Debian's too if none is built."""
    if built is None or can_run_debians():
        return DEBIAN
    return GuestKernel(built, Backend.IPTABLES, _WITHOUT_NFT)


def with_nft(program: Path) -> GuestKernel:
    """The kernel that `build.py` made."""
    return GuestKernel(program, Backend.NFT)
