# SPDX-License-Identifier: Apache-2.0
"""The packet filters of a network namespace, by the programs and the kernel that are found there."""

import hashlib
import socket
from collections.abc import Iterable
from pathlib import Path

from guest_agent.core.filter_errors import filter_error
from guest_agent.core.iptables_variant import IptablesFacts, IptablesPrograms, Variant, select_iptables
from guest_agent.core.packet_filter import FilterKey, FilterUnavailableError, RestoreScript
from guest_agent.kernel import programs
from guest_agent.kernel.iptables_restore_process import IptablesRestoreProcess
from guest_agent.kernel.netfilter_socket import NetfilterSocket
from guest_agent.kernel.nft import NftFilter
from guest_agent.kernel.programs import ProgramResult
from guest_agent.kernel.xtables import TABLES, Xtables, XtablesError
from ruleset.installed.rules import InstalledRules, nothing_installed, read_installed
from ruleset.model import Family
from ruleset.names import NFT_TABLE, Backend

_IPV6 = Path("/proc/thread-self/net/if_inet6")
# Distributions' names for the variants, the default first.
_RESTORES = ("iptables-restore", "iptables-nft-restore", "iptables-legacy-restore")
# The tables in which iptables-nft has its rules.
_IPTABLES_TABLES = ("filter", "nat", "mangle", "raw", "security")
# How long legacy iptables waits for the xtables lock.
_LOCK_WAIT_S = "5"


class KernelPacketFilter:
    """A `PacketFilter`. The constructor finds out what works; see `description`."""

    def __init__(
        self, netfilter: NetfilterSocket | None, *, keep_process: bool = False, host: str = "the guest"
    ) -> None:
        """`netfilter` is None without netlink; nft is then unsupported. Messages name the `host`.

        `keep_process` makes changes of legacy iptables faster by a process that keeps running. It is
        for a guest, which has one packet filter, and not for a node with many.
        """
        self._netfilter = netfilter
        self._keep_process = keep_process
        self._host = host
        self._restore_processes: dict[Path, IptablesRestoreProcess] = {}
        self._xtables = Xtables()
        self._nft = NftFilter.find()
        installed = _installed()
        generation = self._generation()
        self._has_nf_tables = generation is not None
        self._nft_families = self._probe_families()
        is_nft_possible = Family.IPV4 in self._nft_families
        # A request for a legacy table creates it, so guests that use nf_tables are not asked.
        is_legacy_probed = not is_nft_possible or all(
            each.variant is Variant.LEGACY for each in installed[:1]
        )
        self._legacy = next((each for each in installed if each.variant is Variant.LEGACY), None)
        self._has_iptables = bool(installed)
        self._iptables = select_iptables(
            IptablesFacts(
                installed=installed,
                is_legacy_possible=self._probe_legacy(Family.IPV4, may_create=is_legacy_probed),
                is_nft_possible=is_nft_possible,
                has_legacy_rules=any(self._xtables.detect_rules(family) for family in Family),
                has_nft_rules=any(self._has_tables(family, _IPTABLES_TABLES) for family in Family),
            )
        )
        self._unsupported = {
            (family, backend): self._probe(family, backend) for family in Family for backend in Backend
        }
        working = [key for key, message in self._unsupported.items() if not message]
        # nft is preferred: it changes elements where iptables rewrites tables, needs no process, and
        # its generation shows drift. By their priority its hooks stand behind those of a mesh, which
        # uses iptables.
        self._supported = tuple(sorted(working, key=lambda key: (key[1] is not Backend.NFT, key[0].value)))

    def close(self) -> None:
        """Release the network namespace. Its rules stay."""
        self._xtables.close()
        for each in self._restore_processes.values():
            each.close()
        if self._nft is not None:
            self._nft.close()

    @property
    def supported(self) -> tuple[FilterKey, ...]:
        return self._supported

    @property
    def description(self) -> str:
        """The selected programs, for the log."""
        iptables = f"{self._iptables.restore} ({self._iptables.variant.value})" if self._iptables else "none"
        return f"nft {self._nft.name if self._nft else 'none'}, iptables {iptables}"

    def unsupported_message(self, key: FilterKey) -> str:
        return self._unsupported[key]

    def load(self, script: RestoreScript) -> None:
        family, backend = script.key
        if backend is Backend.NFT:
            self._nft_filter(family).load(script.text)
            return
        program = self._iptables_program(family, is_save=False)
        result = self._restore(program, script.text)
        if result.status:
            raise filter_error(program.name, script.text, result.errors, result.status)

    def _restore(self, program: Path, text: str) -> ProgramResult:
        if not self._keep_process or self._iptables is None or self._iptables.variant is not Variant.LEGACY:
            return programs.run(program, "--noflush", "-w", _LOCK_WAIT_S, stdin=text)
        if program not in self._restore_processes:
            self._restore_processes[program] = IptablesRestoreProcess(program)
        return self._restore_processes[program].load(text)

    def read(self, key: FilterKey) -> InstalledRules:
        family, backend = key
        if not self._may_have_rules(key):
            return nothing_installed(family, backend)
        if backend is Backend.NFT:
            return self._nft_filter(family).read(family)
        program = self._iptables_program(family, is_save=True)
        result = programs.run(program)
        if result.status:
            raise filter_error(program.name, "", result.errors, result.status)
        return read_installed(result.output, family, backend)

    def quick_fingerprint(self, keys: Iterable[FilterKey]) -> object:
        return tuple(self._fingerprint(key, is_quick=True) for key in keys)

    def fingerprint(self, keys: Iterable[FilterKey], *, is_changed: bool = False) -> str:
        return " ".join(self._fingerprint(key, is_quick=False, is_changed=is_changed) for key in keys)

    def _fingerprint(self, key: FilterKey, *, is_quick: bool, is_changed: bool = False) -> str:
        family, backend = key
        if backend is Backend.NFT or (self._iptables is not None and self._iptables.variant is Variant.NFT):
            return f"{family.value} {backend.value} {self._generation()}"
        try:
            if is_quick:
                seen = self._xtables.quick_fingerprint(family)
            else:
                seen = self._xtables.fingerprint(family, is_changed=is_changed)
        except XtablesError:
            # For example a kernel with another word size. Then it costs a process.
            program = self._iptables_program(family, is_save=True)
            output = programs.run(program).output
            rules = (line for line in output.split("\n") if not line.startswith("#"))
            seen = hashlib.sha256("\n".join(rules).encode()).hexdigest() if not is_quick else ""
        return f"{family.value} {backend.value} {seen}"

    def _may_have_rules(self, key: FilterKey) -> bool:
        """False if there are none, as far as that shows without a process."""
        family, backend = key
        if (
            backend is Backend.IPTABLES
            and self._iptables is not None
            and self._iptables.variant is Variant.LEGACY
        ):
            return self._xtables.detect_rules(family)
        return self._has_tables(family, (NFT_TABLE,) if backend is Backend.NFT else TABLES)

    def _has_tables(self, family: Family, names: Iterable[str]) -> bool:
        """Whether nf_tables has one of these tables."""
        if self._netfilter is None:
            return False
        number = socket.AF_INET if family is Family.IPV4 else socket.AF_INET6
        tables = self._netfilter.tables()
        return any((number, name) in tables for name in names)

    def _nft_filter(self, family: Family) -> NftFilter:
        if self._nft is None:
            raise FilterUnavailableError(self.unsupported_message((family, Backend.NFT)))
        return self._nft

    def _iptables_program(self, family: Family, *, is_save: bool) -> Path:
        """Raises `FilterUnavailableError`."""
        found = None
        if self._iptables is not None and family is Family.IPV4:
            found = self._iptables.save if is_save else self._iptables.restore
        elif self._iptables is not None:
            found = self._iptables.save6 if is_save else self._iptables.restore6
        if found is None:
            raise FilterUnavailableError(self.unsupported_message((family, Backend.IPTABLES)))
        return Path(found)

    def _generation(self) -> int | None:
        return self._netfilter.generation() if self._netfilter is not None else None

    def _probe_families(self) -> frozenset[Family]:
        """The families of nf_tables: each is a kernel option."""
        if self._netfilter is None or not self._has_nf_tables:
            return frozenset()
        names = {Family.IPV4: socket.AF_INET, Family.IPV6: socket.AF_INET6}
        return frozenset(family for family, name in names.items() if self._netfilter.probe_family(name))

    def _probe_legacy(self, family: Family, *, may_create: bool) -> bool:
        """Whether the kernel has legacy tables, or with `may_create` can load them."""
        if self._xtables.existing_tables(family) or not may_create:
            return bool(self._xtables.existing_tables(family))
        try:
            self._xtables.create_tables(family)
        except XtablesError:
            return self._load_by_iptables(family)
        return True

    def _load_by_iptables(self, family: Family) -> bool:
        """Run iptables, and return whether legacy tables exist then.

        The kernel loads a table's module by itself, but not ip_tables, which provides tables. Where
        that is a module, iptables loads it.
        """
        if self._legacy is None:
            return False
        program = self._legacy.save if family is Family.IPV4 else self._legacy.save6
        if program is None:
            return False
        programs.run(Path(program), "-t", "nat")
        try:
            self._xtables.create_tables(family)
        except XtablesError:
            return False
        return True

    def _probe(self, family: Family, backend: Backend) -> str:
        """Why this packet filter does not work here; "" if it works."""
        if family is Family.IPV6 and not _IPV6.exists():
            return f"{self._host}'s kernel has no IPv6, or it is switched off (ipv6.disable=1)"
        if backend is Backend.NFT:
            if self._nft is None:
                return f"{self._host} has no libnftables, and no nft in {':'.join(programs.DIRECTORIES)}"
            if not self._has_nf_tables:
                return f"{self._host}'s kernel has no nf_tables (CONFIG_NF_TABLES)"
            return self._nft.probe(family)
        if not self._has_iptables:
            return f"{self._host} has no iptables-restore in {':'.join(programs.DIRECTORIES)}"
        if self._iptables is None:
            return f"{self._host}'s kernel has neither the tables of legacy iptables nor nf_tables for IPv4"
        if family is Family.IPV4:
            return ""
        if self._iptables.restore6 is None or self._iptables.save6 is None:
            name = self._iptables.restore.name
            return f"{self._host} has {name} but no ip6tables-restore and -save beside it"
        if self._iptables.variant is Variant.NFT and family not in self._nft_families:
            return f"{self._host}'s nf_tables has no IPv6 (CONFIG_NF_TABLES_IPV6)"
        if self._iptables.variant is Variant.LEGACY and not self._probe_legacy(family, may_create=True):
            return f"{self._host}'s kernel has no legacy ip6tables (CONFIG_IP6_NF_NAT, CONFIG_IP6_NF_FILTER)"
        return ""


def _installed() -> tuple[IptablesPrograms, ...]:
    """The installed variants, each once, the guest's default first."""
    found: dict[Variant, IptablesPrograms] = {}
    for name in _RESTORES:
        restore = programs.find(name)
        save = programs.find(name.replace("restore", "save"))
        if restore is None or save is None:
            continue
        six = name.replace("iptables", "ip6tables")
        pair6 = programs.find(six), programs.find(six.replace("restore", "save"))
        found.setdefault(_variant(restore), IptablesPrograms(_variant(restore), restore, save, *pair6))
    return tuple(found.values())


def _variant(restore: Path) -> Variant:
    """A program's variant, by the target of its links or by its version."""
    real = restore.resolve().name
    for variant in Variant:
        if variant.value in real:
            return variant
    # Before 1.8 there was only legacy iptables, and it did not print that.
    version = programs.run(restore, "--version").output
    return Variant.NFT if "nf_tables" in version else Variant.LEGACY
