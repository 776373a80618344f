# SPDX-License-Identifier: Apache-2.0
"""containerd's own cases (podsandbox, TestParseDNSOption, 2.4.2)."""

import pytest

from dnsconfig.resolve.resolv_conf import ResolvConfLine, lines, retained_lines, text_of
from dnsconfig.resolve.resolver import ResolvConf, SourcedValue


def entries(*values: str) -> tuple[SourcedValue, ...]:
    return tuple(SourcedValue(value, "") for value in values)


@pytest.mark.parametrize(
    ("resolver", "expected"),
    [
        (ResolvConf(), ""),
        (
            ResolvConf(
                entries("8.8.8.8", "server.google.com"), entries("114.114.114.114"), entries("timeout:1")
            ),
            "search 114.114.114.114\nnameserver 8.8.8.8\nnameserver server.google.com\noptions timeout:1\n",
        ),
        (
            ResolvConf(entries("8.8.8.8"), entries("a", "b", "c"), entries("timeout:1", "debug")),
            "search a b c\nnameserver 8.8.8.8\noptions timeout:1 debug\n",
        ),
        (ResolvConf((), (), entries("debug")), "options debug\n"),
    ],
)
def test_text_is_containerds_byte_for_byte(resolver: ResolvConf, expected: str) -> None:
    assert text_of(lines(resolver)) == expected


def test_retained_lines_keep_comments_as_one_value() -> None:
    text = "# Why so.\nsearch a b\nnameserver 10.0.0.1\noptions ndots:5\nodd\n\n"
    found = retained_lines(text)
    assert "".join(line.text for line in found) == text.removesuffix("odd\n\n") + "odd \n"
    comment, search, *_ = found
    assert comment == ResolvConfLine("#", (SourcedValue("Why so.", "why its network's server is missing"),))
    assert search == ResolvConfLine(
        "search", (SourcedValue("a", "retained from before"), SourcedValue("b", "retained from before"))
    )


def test_lines_keep_the_sources_of_values() -> None:
    first = SourcedValue("a", "one")
    assert lines(ResolvConf(searches=(first, SourcedValue("b", "two")))) == (
        ResolvConfLine("search", (first, SourcedValue("b", "two"))),
    )
