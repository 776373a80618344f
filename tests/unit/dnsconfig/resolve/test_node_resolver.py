# SPDX-License-Identifier: Apache-2.0
import pytest

from dnsconfig.resolve.node_resolver import NodeResolver, NodeResolverError, parse


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", NodeResolver()),
        (" ", NodeResolver()),
        ("\n", NodeResolver()),
        ("\t\n\t", NodeResolver()),
        ("#comment\n", NodeResolver()),
        (" #comment\n", NodeResolver()),
        ("; comment\nnameserver 1.2.3.4", NodeResolver(("1.2.3.4",))),
        ("#comment\n#comment", NodeResolver()),
        ("#comment\n\nnameserver 1.2.3.4 5.6.7.8", NodeResolver(("1.2.3.4",))),
        ("\tnameserver \t 1.2.3.4\r\n", NodeResolver(("1.2.3.4",))),
        ("nameserver 1.2.3.4\nnameserver 1.2.3.4", NodeResolver(("1.2.3.4", "1.2.3.4"))),
        ("nameserver 1.2.3.4 #comment", NodeResolver(("1.2.3.4",))),
        ("search ", NodeResolver()),
        ("search foo", NodeResolver((), ("foo",))),
        ("search foo bar bat.com.\n", NodeResolver((), ("foo", "bar", "bat.com"))),
        ("search foo\nsearch bar", NodeResolver((), ("bar",))),
        ("search foo\nsearch", NodeResolver()),
        ("search . foo.. .", NodeResolver((), ("foo.",))),
        ("domain foo\nsortlist 1.2.3.0", NodeResolver()),
        ("options ", NodeResolver()),
        ("options ndots:5 debug", NodeResolver((), (), ("ndots:5", "debug"))),
        ("options foo\noptions ndots:1 foo:2\noptions ndots:3", NodeResolver((), (), ("foo:2", "ndots:3"))),
        ("options ndots:1 ndots:3", NodeResolver((), (), ("ndots:3",))),
        ("option ndots:1", NodeResolver()),
        ("search a\u00a0b\x1cc", NodeResolver((), ("a", "b\x1cc"))),
    ],
)
def test_node_file_is_parsed_as_by_the_kubelet(text: str, expected: NodeResolver) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("nameserver", "a line `nameserver` without an address"),
        ("search a\n nameserver \t\n", "a line `nameserver` without an address"),
        ("search \N{REPLACEMENT CHARACTER}", "a value that is not UTF-8"),
    ],
)
def test_files_that_stop_the_kubelet_are_errors(text: str, reason: str) -> None:
    with pytest.raises(NodeResolverError, match=reason):
        parse(text)


def test_comments_may_have_any_encoding() -> None:
    assert parse("# \N{REPLACEMENT CHARACTER}\nnameserver ::1") == NodeResolver(("::1",))
