# SPDX-License-Identifier: Apache-2.0
"""A resolver as the file that a container sees. Pure.

The format is that of containerd's CRI plugin (internal/cri/server/podsandbox, parseDNSOptions,
2.4.2), byte for byte: the search line, one line a server, the options; what is empty has no line.
"""

from dataclasses import dataclass

from dnsconfig.resolve.resolver import Entry, Resolver

FROM_BEFORE = "given before"


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a resolv.conf: its keyword, and its values with where each comes from."""

    keyword: str
    entries: tuple[Entry, ...]

    @property
    def text(self) -> str:
        return f"{self.keyword} {' '.join(entry.value for entry in self.entries)}\n"


def lines(resolver: Resolver) -> tuple[Line, ...]:
    """The lines of the file, in order."""
    found = []
    if resolver.searches:
        found.append(Line("search", resolver.searches))
    found += [Line("nameserver", (server,)) for server in resolver.servers]
    if resolver.options:
        found.append(Line("options", resolver.options))
    return tuple(found)


def given_before(text: str) -> tuple[Line, ...]:
    """The lines of a file that was not made now: a comment is one value."""
    found = []
    for line in filter(None, text.split("\n")):
        keyword, _, rest = line.partition(" ")
        is_comment = keyword == "#"
        source = "why there is no server of its network" if is_comment else FROM_BEFORE
        values = [rest] if is_comment else rest.split(" ")
        found.append(Line(keyword, tuple(Entry(value, source) for value in values)))
    return tuple(found)


def text_of(found: tuple[Line, ...]) -> str:
    """The whole file; empty where nothing is set, which a C library reads as a server on 127.0.0.1."""
    return "".join(line.text for line in found)
