# SPDX-License-Identifier: Apache-2.0
"""Formats a resolver as the resolv.conf that a container sees.

Byte for byte containerd's CRI plugin (internal/cri/server/podsandbox, parseDNSOptions, 2.4.2): the
search line, one line for each server, the options; an empty list has no line.
"""

from dataclasses import dataclass

from dnsconfig.resolve.resolver import ResolvConf, SourcedValue

RETAINED = "retained from before"


@dataclass(frozen=True, slots=True)
class ResolvConfLine:
    """One line of a resolv.conf: its keyword, and its values with their sources."""

    keyword: str
    entries: tuple[SourcedValue, ...]

    @property
    def text(self) -> str:
        return f"{self.keyword} {' '.join(entry.value for entry in self.entries)}\n"


def lines(resolver: ResolvConf) -> tuple[ResolvConfLine, ...]:
    """The lines of the file, in order."""
    found = []
    if resolver.searches:
        found.append(ResolvConfLine("search", resolver.searches))
    found += [ResolvConfLine("nameserver", (server,)) for server in resolver.servers]
    if resolver.options:
        found.append(ResolvConfLine("options", resolver.options))
    return tuple(found)


def retained_lines(text: str) -> tuple[ResolvConfLine, ...]:
    """The lines of a file that a pod retains: a comment is one value."""
    found = []
    for line in filter(None, text.split("\n")):
        keyword, _, rest = line.partition(" ")
        is_comment = keyword == "#"
        source = "why its network's server is missing" if is_comment else RETAINED
        values = [rest] if is_comment else rest.split(" ")
        found.append(ResolvConfLine(keyword, tuple(SourcedValue(value, source) for value in values)))
    return tuple(found)


def text_of(found: tuple[ResolvConfLine, ...]) -> str:
    """The whole file; empty where nothing is set, so that C libraries ask 127.0.0.1."""
    return "".join(line.text for line in found)
