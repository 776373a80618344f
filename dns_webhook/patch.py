# SPDX-License-Identifier: Apache-2.0
"""Turns a resolver into the fields of a pod's spec from which the kubelet writes its file.

The only difference: search paths of the node's that the API server refuses are left out, and all others of
the node's are in lower case.
"""

import re
from typing import Any

from dnsconfig.resolve.resolv_conf import ResolvConfLine
from dnsconfig.resolve.resolver import SourcedValue

Json = dict[str, Any]

# What an API server accepts as a search path (pkg/apis/core/validation and apimachinery, 1.34). The
# kubelet accepts anything in the node's file, and an author cannot repair a pod that is denied for it.
# The author's own paths stay as they are: the API server judges them as without this webhook.
_LABEL = "_?[a-z0-9](?:[-_a-z0-9]*[a-z0-9])?"
_SEARCH = re.compile(rf"\.|{_LABEL}(?:\.{_LABEL})*\.?")


def spec_fields(lines: tuple[ResolvConfLine, ...]) -> Json:
    """The two fields of a pod's spec from which the kubelet writes these lines."""
    return {"dnsPolicy": "None", "dnsConfig": _dns_config(lines)}


def patch(lines: tuple[ResolvConfLine, ...]) -> list[Json]:
    """The JSON Patch (RFC 6902) that sets both fields; `add` replaces existing values (4.1)."""
    fields = spec_fields(lines).items()
    return [{"op": "add", "path": f"/spec/{name}", "value": value} for name, value in fields]


def left_out(lines: tuple[ResolvConfLine, ...]) -> tuple[str, ...]:
    """The search paths, other than the author's, that a pod's spec may not have."""
    entries = (entry for line in lines if line.keyword == "search" for entry in line.entries)
    return tuple(entry.value for entry in entries if _search(entry) is None)


def _dns_config(lines: tuple[ResolvConfLine, ...]) -> Json:
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


def _search(entry: SourcedValue) -> str | None:
    """The path for the pod's spec; None if it is left out."""
    if entry.is_from_pod:
        return entry.value
    # Domain names are case-insensitive; the API server accepts lower case only.
    folded = entry.value.lower()
    return folded if _SEARCH.fullmatch(folded) else None


def _option(text: str) -> Json:
    name, _, value = text.partition(":")
    return {"name": name, "value": value} if value else {"name": name}
