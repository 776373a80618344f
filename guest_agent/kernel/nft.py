# SPDX-License-Identifier: Apache-2.0
"""nft: by libnftables in this process where it is installed, else by the program."""

from pathlib import Path

from guest_agent.core.filter_errors import filter_error
from guest_agent.core.packet_filter import FilterUnavailableError, RulesRefusedError
from guest_agent.kernel import programs
from guest_agent.kernel.libnftables import LibNftables
from guest_agent.kernel.programs import ProgramResult
from ruleset.document import Document
from ruleset.installed.rules import InstalledRules, nothing_installed, read_installed
from ruleset.model import (
    Endpoint,
    EndpointSet,
    Family,
    Frontend,
    GuestRules,
    NoBackendAction,
    Protocol,
    ServiceRules,
)
from ruleset.names import Backend
from ruleset.render.nft import render
from ruleset.syntax.nft import table

_NOT_FOUND = "No such file or directory"


class NftFilter:
    """Loads and lists our table."""

    def __init__(self, library: LibNftables | None, program: Path | None) -> None:
        self._library = library
        self._program = program

    @classmethod
    def find(cls) -> "NftFilter | None":
        """The guest's nft; None if it has none."""
        program = programs.find("nft")
        try:
            return cls(LibNftables(), program)
        except OSError:
            return cls(None, program) if program is not None else None

    @property
    def name(self) -> str:
        return "libnftables" if self._library is not None else str(self._program)

    def close(self) -> None:
        """Release the network namespace."""
        if self._library is not None:
            self._library.close()

    def probe(self, family: Family) -> str:
        """What the kernel lacks for our rules; "" if nothing.

        One transaction adds a table with one of each kind of rule and deletes it, so the kernel
        reports what it lacks and the table is never visible.
        """
        ours, probe = table(family), f"{table(family)}-probe"
        text = (
            _sample(family)
            .text()
            .replace(f"table {ours}\n", f"table {probe}\n")
            .replace(f"table {ours} {{", f"table {probe} {{")
        )
        try:
            self.load(f"{text}delete table {probe}\n")
        except (RulesRefusedError, FilterUnavailableError) as error:
            return f"the kernel or nft lacks what our rules need: {error}"
        return ""

    def load(self, text: str) -> None:
        """Run commands as one transaction. Raises `RulesRefusedError` and `FilterUnavailableError`."""
        result = self._run(text)
        if result.status:
            raise filter_error("nft", text, result.errors, result.status)

    def read(self, family: Family) -> InstalledRules:
        """Read our table. Raises `FilterUnavailableError`."""
        text = f"list table {table(family)}\n"
        result = self._run(text)
        if result.status and _NOT_FOUND in result.errors:
            return nothing_installed(family, Backend.NFT)
        if result.status:
            raise filter_error("nft", text, result.errors, result.status)
        return read_installed(result.output, family, Backend.NFT)

    def _run(self, text: str) -> ProgramResult:
        if self._library is not None:
            return self._library.run(text)
        if self._program is None:
            raise FilterUnavailableError("the guest has no nft")
        return programs.run(self._program, "-f", "-", stdin=text)


def _sample(family: Family) -> Document:
    """One of each kind of rule that the renderer makes."""
    ip = "192.0.2.%d" if family is Family.IPV4 else "2001:db8::%d"
    some, other = Endpoint(ip % 1, 1), Endpoint(ip % 2, 1)
    targets: list[EndpointSet | NoBackendAction] = [
        EndpointSet("a", Protocol.TCP, False, (some,)),
        EndpointSet("b", Protocol.UDP, False, (some, other)),
        EndpointSet("c", Protocol.TCP, False, (some, other), 10_800),
        NoBackendAction.REJECT,
        NoBackendAction.DROP,
    ]
    frontends = tuple(
        Frontend(ip % (10 + number), 1, to.protocol if isinstance(to, EndpointSet) else Protocol.TCP, "s", to)
        for number, to in enumerate(targets)
    )
    ranges = ("192.0.2.128/25",) if family is Family.IPV4 else ("2001:db8:1::/64",)
    return render(GuestRules(family, (ServiceRules("s", frontends),), ranges))
