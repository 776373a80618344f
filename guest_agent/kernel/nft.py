# SPDX-License-Identifier: Apache-2.0
"""nft in the guest: in this process where the library is there, else by the program."""

from pathlib import Path

from guest_agent.core.filter_errors import failure
from guest_agent.core.packet_filter import Broken, Refused
from guest_agent.kernel import programs
from guest_agent.kernel.libnftables import LibNftables
from guest_agent.kernel.programs import Ended
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

_NOTHING_THERE = "No such file or directory"


class NftFilter:
    """Loads and lists our table. `find` says whether there is one at all."""

    def __init__(self, library: LibNftables | None, program: Path | None) -> None:
        self._library = library
        self._program = program

    @classmethod
    def find(cls) -> "NftFilter | None":
        """What of nft the guest has; None for nothing."""
        program = programs.find("nft")
        try:
            return cls(LibNftables(), program)
        except OSError:
            return cls(None, program) if program is not None else None

    @property
    def name(self) -> str:
        return "libnftables" if self._library is not None else str(self._program)

    def close(self) -> None:
        """Let go of the network namespace."""
        if self._library is not None:
            self._library.close()

    def why_not(self, family: Family) -> str:
        """Why rules such as ours cannot be had in this kernel; "" if they can.

        One of each kind of rule is put into a table and taken away in one transaction, so that the
        kernel says what it lacks and nobody ever sees that table.
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
        except (Refused, Broken) as error:
            return f"the guest's kernel or its nft cannot do what our rules need: {error}"
        return ""

    def load(self, text: str) -> None:
        """Run commands as one transaction. Raises `Refused`, `Broken`."""
        ended = self._run(text)
        if ended.status:
            raise failure("nft", text, ended.errors, ended.status)

    def held(self, family: Family) -> InstalledRules:
        """Read our table. Raises `Broken`."""
        text = f"list table {table(family)}\n"
        ended = self._run(text)
        if ended.status and _NOTHING_THERE in ended.errors:
            return nothing_installed(family, Backend.NFT)
        if ended.status:
            raise failure("nft", text, ended.errors, ended.status)
        return read_installed(ended.output, family, Backend.NFT)

    def _run(self, text: str) -> Ended:
        if self._library is not None:
            return self._library.run(text)
        if self._program is None:
            raise Broken("the guest has no nft")
        return programs.run(self._program, "-f", "-", given=text)


def _sample(family: Family) -> Document:
    """A document with one of each kind of rule that the renderer knows."""
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
