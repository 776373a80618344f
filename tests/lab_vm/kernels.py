# SPDX-License-Identifier: Apache-2.0
"""The kernels that guests run, and how to read and disturb the rules in each.

Debian's has legacy iptables and no usable nft; the one of `build.py` has both, so that guests use nft.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ruleset.names import Backend


@dataclass(frozen=True, slots=True)
class GuestKernel:
    """A User-mode Linux; `backend` is the agents' choice in it."""

    program: Path
    backend: Backend

    @property
    def rules(self) -> tuple[str, ...]:
        """The command that prints all rules of a guest."""
        return ("nft", "list", "ruleset") if self.backend is Backend.NFT else ("iptables-legacy-save",)


DEBIAN = GuestKernel(Path("/usr/bin/linux.uml"), Backend.IPTABLES)


def with_nft(program: Path) -> GuestKernel:
    """The kernel that `build.py` made."""
    return GuestKernel(program, Backend.NFT)
