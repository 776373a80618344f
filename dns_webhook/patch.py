# SPDX-License-Identifier: Apache-2.0
"""A resolver as the fields of a pod's spec that make the kubelet write it. Pure."""

import re
from typing import Any

from dnsconfig.resolve.resolv_conf import Line
from dnsconfig.resolve.resolver import FROM_POD, Entry

Json = dict[str, Any]

# What an API server takes as a search path (pkg/apis/core/validation and apimachinery, 1.34). Of the
# node's file the kubelet takes anything; a pod that is refused for it could not be mended by its author.
# What the author wrote stays as it is: the API server says of it what it says without us.
_LABEL = "_?[a-z0-9](?:[-_a-z0-9]*[a-z0-9])?"
_SEARCH = re.compile(rf"\.|{_LABEL}(?:\.{_LABEL})*\.?")


def spec_fields(lines: tuple[Line, ...]) -> Json:
    """The two fields of a pod's spec with which the kubelet writes just these lines."""
    return {"dnsPolicy": "None", "dnsConfig": _settings(lines)}


def patch(lines: tuple[Line, ...]) -> list[Json]:
    """The JSON Patch (RFC 6902) that puts both fields into a pod.

    `add` replaces what is there (4.1): it needs no look at what the pod has.
    """
    fields = spec_fields(lines).items()
    return [{"op": "add", "path": f"/spec/{name}", "value": value} for name, value in fields]


def left_out(lines: tuple[Line, ...]) -> tuple[str, ...]:
    """The search paths that are not the author's and that no pod's spec may have."""
    entries = (entry for line in lines if line.keyword == "search" for entry in line.entries)
    return tuple(entry.value for entry in entries if _search(entry) is None)


def _settings(lines: tuple[Line, ...]) -> Json:
    found: Json = {}
    for line in lines:
        values = [entry.value for entry in line.entries]
        match line.keyword:
            case "nameserver":
                found.setdefault("nameservers", []).extend(values)
            case "search":
                searches = map(_search, line.entries)
                found["searches"] = [value for value in searches if value is not None]
            case "options":
                found["options"] = [_option(value) for value in values]
    return found


def _search(entry: Entry) -> str | None:
    """As it stands in the pod's spec; None for what is left out."""
    if entry.source == FROM_POD:
        return entry.value
    # Names are the same in either case, and an API server takes the lower one only.
    folded = entry.value.lower()
    return folded if _SEARCH.fullmatch(folded) else None


def _option(text: str) -> Json:
    name, _, value = text.partition(":")
    return {"name": name, "value": value} if value else {"name": name}
