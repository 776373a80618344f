# SPDX-License-Identifier: Apache-2.0
"""A fake `PacketFilter` over fake iptables. It does not know the language of nft.

`tests/packet_filter_contract.py` runs against it and, in the lab ring, against the kernel's packet filters.
"""

from collections.abc import Iterable

from devkit.fake_iptables import FakeIptables, RestoreRefusedError
from guest_agent.core.packet_filter import (
    FilterKey,
    FilterUnavailableError,
    RestoreScript,
    RulesRefusedError,
)
from ruleset.installed.rules import InstalledRules, read_installed
from ruleset.model import Family
from ruleset.names import Backend


class FakePacketFilter:
    """The iptables of both families, which tests change as another program would.

    `missing` has the packet filters that do not work, and why. A line that contains `refused` is
    refused. `loaded` has the scripts that were loaded, `reads` the keys that were read.
    """

    def __init__(self) -> None:
        self.iptables = {family: FakeIptables() for family in Family}
        self.missing: dict[FilterKey, str] = {(family, Backend.NFT): "no nft here" for family in Family}
        self.refused = ""
        self.unavailable = ""
        self.loaded: list[RestoreScript] = []
        self.reads: list[FilterKey] = []

    @property
    def supported(self) -> tuple[FilterKey, ...]:
        every = ((family, backend) for backend in Backend for family in Family)
        return tuple(key for key in every if key not in self.missing)

    def unsupported_message(self, key: FilterKey) -> str:
        return self.missing.get(key, "")

    def load(self, script: RestoreScript) -> None:
        self._check()
        iptables = self.iptables[script.key[0]]
        iptables.refused = self.refused
        try:
            iptables.restore(script.text)
        except RestoreRefusedError as error:
            raise RulesRefusedError(f"line {error.number} is {error.line!r}") from None
        self.loaded.append(script)

    def read(self, key: FilterKey) -> InstalledRules:
        self._check()
        self.reads.append(key)
        return read_installed(self.text(key[0]), *key)

    def quick_fingerprint(self, keys: Iterable[FilterKey]) -> object:
        return self.fingerprint(keys)

    def fingerprint(self, keys: Iterable[FilterKey], *, is_changed: bool = False) -> str:
        self._check()
        return "\n".join(self.text(family) for family, _ in keys)

    def text(self, family: Family) -> str:
        """What `iptables-save` would print."""
        return self.iptables[family].save()

    def _check(self) -> None:
        if self.unavailable:
            raise FilterUnavailableError(self.unavailable)
