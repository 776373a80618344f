# SPDX-License-Identifier: Apache-2.0
"""The packet filters of the network namespace that the agent runs in."""

import hashlib
import socket
from collections.abc import Iterable
from pathlib import Path

from guest_agent.core.filter_errors import failure
from guest_agent.core.iptables_variant import Facts, Programs, Variant, chosen
from guest_agent.core.packet_filter import Broken, Change, Place
from guest_agent.kernel import programs
from guest_agent.kernel.iptables_restore_process import Restorer
from guest_agent.kernel.netfilter_socket import Netfilter
from guest_agent.kernel.nft import NftFilter
from guest_agent.kernel.programs import Ended
from guest_agent.kernel.xtables import TABLES, Xtables, XtablesError
from ruleset.installed.rules import InstalledRules, nothing_installed, read_installed
from ruleset.model import Family
from ruleset.names import NFT_TABLE, Backend

_IPV6 = Path("/proc/thread-self/net/if_inet6")
# The names under which distributions have the variants, the guest's own choice first.
_RESTORES = ("iptables-restore", "iptables-nft-restore", "iptables-legacy-restore")
# Under these names iptables-nft keeps its rules.
_IPTABLES_TABLES = ("filter", "nat", "mangle", "raw", "security")
# How long legacy iptables waits for another one: they exclude each other by a lock file.
_LOCK_WAIT_S = "5"


class KernelFilter:
    """A `PacketFilter`. Looks at construction what there is and what works; see `describe`."""

    def __init__(self, netfilter: Netfilter | None, *, is_sole: bool = False) -> None:
        """`netfilter` is None where there is no netlink: then nft is taken for absent.

        `is_sole`: there is no other one in this system, so that one that is quick, with a process
        that stays, is worth more than one that leaves nothing behind between two changes.
        """
        self._netfilter = netfilter
        self._is_sole = is_sole
        self._restorers: dict[Path, Restorer] = {}
        self._xtables = Xtables()
        self._nft = NftFilter.find()
        installed = _installed()
        generation = self._generation()
        self._has_nf_tables = generation is not None
        self._nft_families = self._probed_families()
        is_nft_possible = Family.IPV4 in self._nft_families
        # Asking for a table makes it, so it is not asked for in a guest that goes by nf_tables.
        is_legacy_asked = not is_nft_possible or all(each.variant is Variant.LEGACY for each in installed[:1])
        self._legacy = next((each for each in installed if each.variant is Variant.LEGACY), None)
        self._has_iptables = bool(installed)
        self._iptables = chosen(
            Facts(
                installed=installed,
                is_legacy_possible=self._is_legacy_possible(Family.IPV4, is_asked=is_legacy_asked),
                is_nft_possible=is_nft_possible,
                has_legacy_rules=any(self._xtables.has_rules(family) for family in Family),
                has_nft_rules=any(self._has_tables(family, _IPTABLES_TABLES) for family in Family),
            )
        )
        self._refusals = {
            (family, backend): self._why_not(family, backend) for family in Family for backend in Backend
        }
        usable = [place for place, why in self._refusals.items() if not why]
        # nft changes elements where iptables rewrites tables, in this process where iptables is one
        # of its own, and its generation tells a drift. Its hooks stand behind those of a mesh, which
        # uses iptables, by their priority.
        self._places = tuple(sorted(usable, key=lambda place: (place[1] is not Backend.NFT, place[0].value)))

    def close(self) -> None:
        """Let go of the network namespace; the rules in it stay."""
        self._xtables.close()
        for each in self._restorers.values():
            each.close()
        if self._nft is not None:
            self._nft.close()

    @property
    def places(self) -> tuple[Place, ...]:
        return self._places

    @property
    def describe(self) -> str:
        """What was chosen, for the log."""
        iptables = f"{self._iptables.restore} ({self._iptables.variant.value})" if self._iptables else "none"
        return f"nft {self._nft.name if self._nft else 'none'}, iptables {iptables}"

    def why_not(self, place: Place) -> str:
        return self._refusals[place]

    def load(self, change: Change) -> None:
        family, backend = change.place
        if backend is Backend.NFT:
            self._nft_filter(family).load(change.text)
            return
        program = self._iptables_program(family, is_save=False)
        ended = self._restored(program, change.text)
        if ended.status:
            raise failure(program.name, change.text, ended.errors, ended.status)

    def _restored(self, program: Path, text: str) -> Ended:
        if not self._is_sole or self._iptables is None or self._iptables.variant is not Variant.LEGACY:
            return programs.run(program, "--noflush", "-w", _LOCK_WAIT_S, given=text)
        if program not in self._restorers:
            self._restorers[program] = Restorer(program)
        return self._restorers[program].run(text)

    def held(self, place: Place) -> InstalledRules:
        family, backend = place
        if not self._may_hold(place):
            return nothing_installed(family, backend)
        if backend is Backend.NFT:
            return self._nft_filter(family).held(family)
        program = self._iptables_program(family, is_save=True)
        ended = programs.run(program)
        if ended.status:
            raise failure(program.name, "", ended.errors, ended.status)
        return read_installed(ended.output, family, backend)

    def glance(self, places: Iterable[Place]) -> object:
        return tuple(self._seen(place, is_closer=False) for place in places)

    def fingerprint(self, places: Iterable[Place], *, is_changed: bool = False) -> str:
        return " ".join(self._seen(place, is_closer=True, is_changed=is_changed) for place in places)

    def _seen(self, place: Place, *, is_closer: bool, is_changed: bool = False) -> str:
        family, backend = place
        if backend is Backend.NFT or (self._iptables is not None and self._iptables.variant is Variant.NFT):
            return f"{family.value} {backend.value} {self._generation()}"
        try:
            if is_closer:
                seen = self._xtables.states(family, is_changed=is_changed)
            else:
                seen = self._xtables.sizes(family)
        except XtablesError:
            # A kernel of another word size than ours, say: it costs a process then.
            program = self._iptables_program(family, is_save=True)
            output = programs.run(program).output
            rules = (line for line in output.split("\n") if not line.startswith("#"))
            seen = hashlib.sha256("\n".join(rules).encode()).hexdigest() if is_closer else ""
        return f"{family.value} {backend.value} {seen}"

    def _may_hold(self, place: Place) -> bool:
        """False where it is known without a process that there is nothing at all."""
        family, backend = place
        if (
            backend is Backend.IPTABLES
            and self._iptables is not None
            and self._iptables.variant is Variant.LEGACY
        ):
            return self._xtables.has_rules(family)
        return self._has_tables(family, (NFT_TABLE,) if backend is Backend.NFT else TABLES)

    def _has_tables(self, family: Family, names: Iterable[str]) -> bool:
        """Whether nf_tables has one of these."""
        if self._netfilter is None:
            return False
        number = socket.AF_INET if family is Family.IPV4 else socket.AF_INET6
        there = self._netfilter.tables()
        return any((number, name) in there for name in names)

    def _nft_filter(self, family: Family) -> NftFilter:
        if self._nft is None:
            raise Broken(self.why_not((family, Backend.NFT)))
        return self._nft

    def _iptables_program(self, family: Family, *, is_save: bool) -> Path:
        """The program for a family. Raises `Broken`."""
        found = None
        if self._iptables is not None and family is Family.IPV4:
            found = self._iptables.save if is_save else self._iptables.restore
        elif self._iptables is not None:
            found = self._iptables.save6 if is_save else self._iptables.restore6
        if found is None:
            raise Broken(self.why_not((family, Backend.IPTABLES)))
        return found

    def _generation(self) -> int | None:
        return self._netfilter.generation() if self._netfilter is not None else None

    def _probed_families(self) -> frozenset[Family]:
        """The families that nf_tables knows here: each is an option of its own."""
        if self._netfilter is None or not self._has_nf_tables:
            return frozenset()
        names = {Family.IPV4: socket.AF_INET, Family.IPV6: socket.AF_INET6}
        return frozenset(family for family, name in names.items() if self._netfilter.knows_family(name))

    def _is_legacy_possible(self, family: Family, *, is_asked: bool) -> bool:
        """Whether the kernel has legacy tables, loaded already or, if asked for, loadable."""
        if self._xtables.instantiated(family) or not is_asked:
            return bool(self._xtables.instantiated(family))
        try:
            self._xtables.make(family)
        except XtablesError:
            return self._is_loaded_by_iptables(family)
        return True

    def _is_loaded_by_iptables(self, family: Family) -> bool:
        """Whether legacy tables are there once iptables was there.

        The kernel loads a table's module by itself, but not ip_tables, which knows of tables: where
        that is a module, it is iptables that loads it.
        """
        if self._legacy is None:
            return False
        program = self._legacy.save if family is Family.IPV4 else self._legacy.save6
        if program is None:
            return False
        programs.run(program, "-t", "nat")
        try:
            self._xtables.make(family)
        except XtablesError:
            return False
        return True

    def _why_not(self, family: Family, backend: Backend) -> str:
        if family is Family.IPV6 and not _IPV6.exists():
            return "the guest's kernel has no IPv6, or it is switched off (ipv6.disable=1)"
        if backend is Backend.NFT:
            if self._nft is None:
                return f"the guest has no libnftables, and no nft in {':'.join(programs.DIRECTORIES)}"
            if not self._has_nf_tables:
                return "the guest's kernel has no nf_tables (CONFIG_NF_TABLES)"
            return self._nft.why_not(family)
        if not self._has_iptables:
            return f"the guest has no iptables-restore in {':'.join(programs.DIRECTORIES)}"
        if self._iptables is None:
            return "the guest's kernel has neither the tables of legacy iptables nor nf_tables for IPv4"
        if family is Family.IPV4:
            return ""
        if self._iptables.restore6 is None or self._iptables.save6 is None:
            return f"the guest has {self._iptables.restore.name} but no ip6tables-restore and -save beside it"
        if self._iptables.variant is Variant.NFT and family not in self._nft_families:
            return "the guest's nf_tables has no IPv6 (CONFIG_NF_TABLES_IPV6)"
        if self._iptables.variant is Variant.LEGACY and not self._is_legacy_possible(family, is_asked=True):
            return "the guest's kernel has no legacy ip6tables (CONFIG_IP6_NF_NAT, CONFIG_IP6_NF_FILTER)"
        return ""


def _installed() -> tuple[Programs, ...]:
    """The variants that are there, each once, the guest's own choice first."""
    found: dict[Variant, Programs] = {}
    for name in _RESTORES:
        restore = programs.find(name)
        save = programs.find(name.replace("restore", "save"))
        if restore is None or save is None:
            continue
        six = name.replace("iptables", "ip6tables")
        pair6 = programs.find(six), programs.find(six.replace("restore", "save"))
        found.setdefault(_variant(restore), Programs(_variant(restore), restore, save, *pair6))
    return tuple(found.values())


def _variant(restore: Path) -> Variant:
    """What a program is, by what its links lead to, or by what it says of itself."""
    real = restore.resolve().name
    for variant in Variant:
        if variant.value in real:
            return variant
    # Before 1.8 there was only the one that is legacy now, and it did not say so.
    version = programs.run(restore, "--version").output
    return Variant.NFT if "nf_tables" in version else Variant.LEGACY
