# SPDX-License-Identifier: Apache-2.0
"""What packet filters remember of clients, for session affinity: taken from them again."""

import re
from pathlib import Path

from tests.cases.services.namespace import Namespace

_RECENT = Path("/proc/thread-self/net/xt_recent")
_TABLE = re.compile(r"^table (\S+) (\S+) \{")
_OBJECT = re.compile(r"^\t(set|map|chain) (\S+) \{")


def forget_clients(namespace: Namespace) -> None:
    """Nobody is remembered by any rule afterwards."""
    namespace.call(_empty_recent)
    sets = _dynamic_sets(namespace.run("nft", "-t", "list", "ruleset"))
    if sets:
        namespace.run("nft", "-f", "-", text="".join(f"flush set {one}\n" for one in sets))


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
