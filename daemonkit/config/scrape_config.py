# SPDX-License-Identifier: Apache-2.0
"""The part of every daemon's configuration for scrapers on other machines."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from daemonkit.config.binding import setting
from daemonkit.config.ip_addresses import is_address


@dataclass(frozen=True, slots=True)
class ScrapeConfig:
    """A listener for /metrics alone, by mutual TLS. The names of scrapers are needed beside the authority:
    an apiserver reaches any port of a node, and some authority of the cluster signs its certificate too."""

    address: str | None = setting(None, minimum_length=1, doc="IP address for scrapers; none: no listener")
    port: int = setting(0, minimum=0, maximum=65535, doc="of the scrapers' address; 0 takes any free one")
    certificate_file: Path | None = setting(None, doc="PEM, leaf first; reloaded when it changes")
    key_file: Path | None = setting(None, doc="PEM, without a passphrase")
    client_ca_file: Path | None = setting(
        None, key="clientCAFile", doc="PEM of the authorities of scrapers' certificates"
    )
    client_names: tuple[str, ...] = setting(
        (),
        minimum_length=1,
        doc="scrapers that are served: common names, or DNS names or URIs of their certificates",
    )

    @property
    def files(self) -> tuple[Path, Path, Path] | None:
        """Certificate, key and authorities; None without a listener."""
        if self.certificate_file is None or self.key_file is None or self.client_ca_file is None:
            return None
        return self.certificate_file, self.key_file, self.client_ca_file

    def problems(self) -> Iterator[str]:
        if self.address is None:
            return
        if not is_address(self.address):
            yield f"address: expected an IP address, got {self.address!r}"
        needed = {
            "certificateFile": self.certificate_file,
            "keyFile": self.key_file,
            "clientCAFile": self.client_ca_file,
        }
        for name, value in needed.items():
            if value is None:
                yield f"{name}: needed with address"
        if not self.client_names:
            yield "clientNames: expected at least one name"
