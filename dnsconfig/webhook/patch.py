# SPDX-License-Identifier: Apache-2.0
"""A resolver as the fields of a pod's spec that make the kubelet write it. Pure."""

from typing import Any

from dnsconfig.core.text import Line

Json = dict[str, Any]


def spec_fields(lines: tuple[Line, ...]) -> Json:
    """The two fields of a pod's spec with which the kubelet writes just these lines."""
    return {"dnsPolicy": "None", "dnsConfig": _settings(lines)}


def patch(lines: tuple[Line, ...]) -> list[Json]:
    """The JSON Patch (RFC 6902) that puts both fields into a pod.

    `add` replaces what is there (4.1): it needs no look at what the pod has.
    """
    fields = spec_fields(lines).items()
    return [{"op": "add", "path": f"/spec/{name}", "value": value} for name, value in fields]


def _settings(lines: tuple[Line, ...]) -> Json:
    found: Json = {}
    for line in lines:
        values = [entry.value for entry in line.entries]
        match line.keyword:
            case "nameserver":
                found.setdefault("nameservers", []).extend(values)
            case "search":
                found["searches"] = values
            case "options":
                found["options"] = [_option(value) for value in values]
    return found


def _option(text: str) -> Json:
    name, _, value = text.partition(":")
    return {"name": name, "value": value} if value else {"name": name}
