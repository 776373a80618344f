# SPDX-License-Identifier: Apache-2.0
"""Expands the abbreviations of a case's request: `{n}`, `{1..5000}`, `{a1..a10001}`, `300 KiB of a`.

A range repeats the part of the request around it: a query parameter, a header line or a path segment.
"""

import re

_RANGE = re.compile(r"\{([A-Za-z_.-]*)(\d+)\.\.([A-Za-z_.-]*)(\d+)\}")
_MUCH = re.compile(r"\{?(\d+) (B|bytes|KiB|MiB) of (\S)\}?")
_UNITS = {"B": 1, "bytes": 1, "KiB": 1024, "MiB": 1024 * 1024}


class ExpandError(Exception):
    """The abbreviation is invalid."""


def expand(text: str, number: int) -> str:
    """Expand one whole request; `number` counts its repetitions from 1."""
    text = text.replace("{n}", str(number))
    text = _MUCH.sub(lambda match: match[3] * (int(match[1]) * _UNITS[match[2]]), text)
    lines = []
    for index, line in enumerate(text.split("\r\n")):
        lines.append(_expand_request_line(line) if index == 0 else _repeat(line, "\r\n"))
    return "\r\n".join(lines)


def _expand_request_line(line: str) -> str:
    parts = line.split(" ")
    for index, part in enumerate(parts):
        path, mark, query = part.partition("?")
        path = "/".join(_repeat(segment, "/") for segment in path.split("/"))
        query = "&".join(_repeat(parameter, "&") for parameter in query.split("&"))
        parts[index] = path + mark + query
    return " ".join(parts)


def _repeat(unit: str, separator: str) -> str:
    """The part once for each value of its range; unchanged without a range."""
    match = _RANGE.search(unit)
    if match is None:
        return unit
    prefix, first, prefix_again, last = match.groups()
    if prefix != prefix_again or int(last) < int(first):
        raise ExpandError(f"no range: {match[0]}")
    before, after = unit[: match.start()], unit[match.end() :]
    return separator.join(f"{before}{prefix}{i}{after}" for i in range(int(first), int(last) + 1))
