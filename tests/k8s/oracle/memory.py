# SPDX-License-Identifier: Apache-2.0
"""Deletes the clients that packet filters remember for session affinity."""

import re
from pathlib import Path

from tests.cases.services.namespace import ThreadedNamespace

_RECENT = Path("/proc/thread-self/net/xt_recent")
_TABLE = re.compile(r"^table (\S+) (\S+) \{")
_OBJECT = re.compile(r"^\t(set|map|chain) (\S+) \{")


class AffinityMemory:
    """The remembered clients of a namespace's current rules."""

    def __init__(self, namespace: ThreadedNamespace) -> None:
        self._namespace = namespace
        sets = _dynamic_sets(namespace.run("nft", "-t", "list", "ruleset"))
        self._flush = "".join(f"flush set {one}\n" for one in sets)

    def forget(self) -> None:
        """Forget all clients."""
        self._namespace.call(_empty_recent)
        if self._flush:
            self._namespace.run("nft", "-f", "-", text=self._flush)


def _empty_recent() -> None:
    if not _RECENT.is_dir():
        return
    for one in _RECENT.iterdir():
        one.write_text("/\n")


def _dynamic_sets(listed: str) -> list[str]:
    """`family table set` of all sets that rules write into."""
    found: list[str] = []
    table = name = ""
    for line in listed.splitlines():
        if match := _TABLE.match(line):
            table = f"{match[1]} {match[2]}"
        elif match := _OBJECT.match(line):
            name = match[2] if match[1] == "set" else ""
        elif name and line.startswith("\t\tflags ") and "dynamic" in line:
            found.append(f"{table} {name}")
    return found
