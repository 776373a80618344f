# SPDX-License-Identifier: Apache-2.0
"""Where a packet arrived, as its receiver reports."""

from dataclasses import dataclass

from ruleset.model import Endpoint


@dataclass(frozen=True, slots=True)
class Arrival:
    """`where` is the namespace; `source` the address that the other end saw as the sender's."""

    where: str
    ip: str
    port: int
    source: str

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(self.ip, self.port)

    def line(self) -> bytes:
        return f"{self.where} {self.ip} {self.port} {self.source}\n".encode()


def parse(line: bytes) -> Arrival:
    where, ip, port, source = line.decode().split()
    return Arrival(where, ip, int(port), source)
