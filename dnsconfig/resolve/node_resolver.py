# SPDX-License-Identifier: Apache-2.0
"""The node's own resolver, as the kubelet reads it (pkg/kubelet/network/dns, parseResolvConf, 1.34). Pure."""

import re
from dataclasses import dataclass

# Go's unicode.IsSpace. Python's own idea has the four separators \x1c-\x1f too.
_BLANKS = re.compile("[\t\n\v\f\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+")
# What stands for bytes that are not UTF-8; the kubelet could not send such a value to the runtime.
_REPLACED = "\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True, slots=True)
class HostResolver:
    """What `--resolv-conf` names; all empty where the kubelet is given none (`is_none`)."""

    servers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    is_none: bool = False


NO_HOST_RESOLVER = HostResolver(is_none=True)


class BadHostFile(ValueError):  # noqa: N818 - the state it tells of
    """The kubelet would start no pod with this file, whatever the pod's policy; the text says why."""


def parse(text: str) -> HostResolver:
    """Read a resolv.conf. Raises BadHostFile.

    `nameserver` lines add up; of `search` lines the last one counts; `options` lines add up, and of
    one option the last value. `domain`, `sortlist` and the rest mean nothing here. Where the kubelet
    writes options in no order at all (it goes over a Go map), ours stay where they were first named.
    """
    servers: list[str] = []
    searches: list[str] = []
    options: dict[str, str] = {}
    for line in text.split("\n"):
        fields = [field for field in _BLANKS.split(line) if field]
        if not fields or fields[0].startswith("#"):
            continue
        keyword, values = fields[0], fields[1:]
        if keyword == "nameserver":
            if not values:
                raise BadHostFile("a line `nameserver` without an address")
            servers.append(values[0])
        elif keyword == "search":
            searches = [value.removesuffix(".") for value in values if value != "."]
        elif keyword == "options":
            for value in values:
                options[value.split(":")[0]] = value
    found = HostResolver(tuple(servers), tuple(searches), tuple(options.values()))
    if any(_REPLACED in value for value in (*found.servers, *found.searches, *found.options)):
        raise BadHostFile("a value that is not UTF-8")
    return found
