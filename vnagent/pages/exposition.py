# SPDX-License-Identifier: Apache-2.0
"""The Prometheus text format, version 0.0.4, read and written; OpenMetrics 1.0, read.

https://github.com/prometheus/docs/blob/main/docs/instrumenting/exposition_formats.md
https://github.com/prometheus/OpenMetrics/blob/main/specification/OpenMetrics.md

OpenMetrics is written as the older format: times in ms, no exemplars, and no types that only it has.

A label value may contain anything, also the text of other labels. So every label block is scanned
from brace to brace by the grammar, and no search for `namespace="` decides. A cadvisor
page has tens of thousands of rows but few distinct label blocks (a container's recurs in every family):
rows carry theirs as written, and a caller parses each once.

Prometheus 3 writes a name with other characters in quotes: that of a family within the braces, as in
`{"my.family",x="y"} 1`. Such a row has an empty name here, as no family of a kubelet is called so.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from vnagent.pages.page import PageError

# Possessive, so that a hostile line costs one pass: what one part has taken no other part may try.
_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*+"
_GAP, _BLANKS = r"[ \t]*+", r"[ \t]++"
_BLOCK = r'\{(?:[^"{}\n]*+"[^"\\\n]*+(?:\\.[^"\\\n]*+)*+")*+[^"{}\n]*+\}'
# What Go's ParseFloat takes of the numbers that Prometheus writes.
_VALUE = r"(?:[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?|[+-]?Inf|NaN)"
# Without a name where a block follows, which then has the name.
_ROW_NAME = rf"{_NAME}|(?=\{{)"
_SAMPLE = re.compile(rf"({_ROW_NAME}){_GAP}({_BLOCK})?{_GAP}({_VALUE})(?:{_BLANKS}(-?[0-9]{{1,19}}))?{_GAP}")
# In OpenMetrics, times are in seconds (Go writes 1.7e+09), and an exemplar may follow: labels of a trace, its
# value and time.
_SECONDS = r"-?[0-9]{1,19}(?:\.[0-9]{0,19})?(?:[eE][+-]?[0-9]{1,2})?"
_OPENMETRICS_SAMPLE = re.compile(
    rf"({_ROW_NAME})({_BLOCK})?{_BLANKS}({_VALUE})(?:{_BLANKS}({_SECONDS}))?"
    rf"(?:{_BLANKS}#{_BLANKS}{_BLOCK}{_BLANKS}{_VALUE}(?:{_BLANKS}{_SECONDS})?)?"
)
_EOF = "# EOF"
_LABEL = re.compile(
    rf'{_GAP}(?:(?P<name>[a-zA-Z_][a-zA-Z0-9_]*+)|"(?P<quoted>(?:[^"\\\n]++|\\[\\"n])++)"){_GAP}={_GAP}'
    rf'"(?P<value>(?:[^"\\\n]++|\\[\\"n])*+)"{_GAP}(?P<more>,?)'
)
_COMMENT = re.compile(rf"#{_BLANKS}(HELP|TYPE){_BLANKS}({_NAME})(?:{_BLANKS}(.*+))?")
_TYPES = frozenset({"counter", "gauge", "histogram", "summary", "untyped"})
_OPENMETRICS_TYPES = frozenset({"unknown", "info", "stateset", "gaugehistogram"})

_ESCAPED = re.compile(r"\\(.)")
_PLAIN = {"\\": "\\", '"': '"', "n": "\n"}


class Sample(NamedTuple):
    """One row. `block` is its label block as written, `time` its time in ms as written, or empty."""

    name: str
    block: str
    value: str
    time: str


class Comment(NamedTuple):
    """A HELP or TYPE line; `text` as written."""

    word: str
    name: str
    text: str


def lines(page: bytes) -> Iterator[Sample | Comment]:
    """The rows and the HELP and TYPE lines of a page, in order. Raises PageError.

    Label blocks are delimited here and taken apart by `labels`. Every line has to end, the last one
    too, which is how a page that was cut off is known. A page that ends in `# EOF` is OpenMetrics.
    """
    try:
        text = page.decode("utf-8")
    except UnicodeDecodeError as error:
        raise PageError("not UTF-8") from error
    if text and not text.endswith("\n"):
        raise PageError("cut off within a line")
    is_openmetrics = text.endswith(f"\n{_EOF}\n") or text == f"{_EOF}\n"
    if is_openmetrics:
        text = text[: -len(_EOF) - 1]
    for line in text.split("\n"):
        if line.startswith("#"):
            if line == _EOF:
                raise PageError("goes on after its end")
            comment = _COMMENT.fullmatch(line)
            if comment is not None:
                yield _comment(comment, is_openmetrics=is_openmetrics)
            continue
        if not line:
            continue
        match = _OPENMETRICS_SAMPLE.fullmatch(line) if is_openmetrics else _SAMPLE.fullmatch(line)
        if match is None:
            raise PageError("a line is neither a sample nor a comment")
        sample = Sample(*match.groups(""))
        if is_openmetrics and sample.time:
            sample = sample._replace(time=str(round(float(sample.time) * 1000)))
        yield sample


def _comment(match: re.Match[str], *, is_openmetrics: bool) -> Comment:
    comment = Comment(*match.groups(""))
    # ASCII's blanks alone: `str.strip` takes others too, which a scraper would see.
    if comment.word == "TYPE" and (kind := comment.text.strip(" \t")) not in _TYPES:
        if not is_openmetrics or kind not in _OPENMETRICS_TYPES:
            raise PageError("a family is of no known type")
        return comment._replace(text="untyped")
    return comment


def labels(block: str) -> dict[str, str]:
    """The labels of a block, their values unescaped. Raises PageError.

    A name that comes twice is refused: two readers might each believe another one.
    """
    found: dict[str, str] = {}
    at, end = 1, len(block) - 1
    more = True
    while at < end:
        match = _LABEL.match(block, at, end)
        if match is None or not more:
            # Blanks alone may stand before the closing brace.
            if found and more and not block[at:end].strip(" \t"):
                break
            raise PageError("a label is malformed")
        name = match["name"] or _ESCAPED.sub(_unescape, match["quoted"])
        if name in found:
            raise PageError("a row has a label twice")
        value = match["value"]
        found[name] = _ESCAPED.sub(_unescape, value) if "\\" in value else value
        at, more = match.end(), bool(match["more"])
    return found


def _unescape(match: re.Match[str]) -> str:
    return _PLAIN[match[1]]


def label_text(found: Iterable[tuple[str, str]]) -> str:
    """Labels as they stand within the braces, their values escaped."""
    return ",".join(f'{name}="{_escape(value)}"' for name, value in found)


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def sample_text(name: str, inner: str, value: str, time: str) -> str:
    """A row with its line's end; `inner` is what stands within the braces."""
    block = f"{{{inner}}}" if inner else ""
    return f"{name}{block} {value} {time}\n" if time else f"{name}{block} {value}\n"


def family_text(name: str, comments: Mapping[str, str]) -> str:
    """The HELP and TYPE lines of a family, as far as it has them."""
    return "".join(f"# {word} {name} {comments[word]}\n" for word in ("HELP", "TYPE") if word in comments)


def number(value: float) -> str:
    """A number as short as it can be written: whole ones without a point."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
