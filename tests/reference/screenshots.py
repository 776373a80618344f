# SPDX-License-Identifier: Apache-2.0
"""A terminal's screen as an SVG: lines with states in colour, in characters of one width."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

from vcnode.terminal import Style, Styled, printable

COLUMNS = 80
# Of a character and a line, in pixels.
_ADVANCE, _LINE = 8.4, 18
_MARGIN = 12
_BACKGROUND, _TEXT, _PROMPT = "#1e1e1e", "#d4d4d4", "#8a8a8a"
_COLOURS = {Style.GOOD: "#7fc97f", Style.WARNING: "#e5c07b", Style.BAD: "#e06c75"}


class TooWideError(Exception):
    """A line does not fit into the terminal."""


def svg(command: str, lines: Sequence[str]) -> str:
    """The screen after `command` printed `lines`. Raises `TooWideError`."""
    for line in lines:
        if len(line) > COLUMNS:
            raise TooWideError(f"{command}: {len(line)} characters: {line}")
    width = round(COLUMNS * _ADVANCE) + 2 * _MARGIN
    height = (len(lines) + 1) * _LINE + 2 * _MARGIN
    rows = [f'<tspan fill="{_PROMPT}">$ </tspan>{escape(command)}', *map(_spans, lines)]
    texts = "\n".join(
        f'<text x="{_MARGIN}" y="{_MARGIN + (number + 1) * _LINE - 5}">{row}</text>'
        for number, row in enumerate(rows)
    )
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">
<title>{escape(command)}</title>
<style>text {{ font: 14px monospace; fill: {_TEXT}; white-space: pre; }}</style>
<rect width="100%" height="100%" rx="6" fill="{_BACKGROUND}"/>
{texts}
</svg>
"""


def _spans(line: str) -> str:
    """The line with its colours."""
    spans = sorted(line.spans, key=lambda span: span[0]) if isinstance(line, Styled) else []
    text = printable(line)
    made, at = "", 0
    for start, end, style in spans:
        made += escape(text[at:start])
        made += f'<tspan fill="{_COLOURS[style]}">{escape(text[start:end])}</tspan>'
        at = end
    return made + escape(text[at:])
