# SPDX-License-Identifier: Apache-2.0
import pytest

from dnsconfig.resolve.node_resolver import BadHostFile, HostResolver, parse


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", HostResolver()),
        (" ", HostResolver()),
        ("\n", HostResolver()),
        ("\t\n\t", HostResolver()),
        ("#comment\n", HostResolver()),
        (" #comment\n", HostResolver()),
        ("; comment\nnameserver 1.2.3.4", HostResolver(("1.2.3.4",))),
        ("#comment\n#comment", HostResolver()),
        ("#comment\n\nnameserver 1.2.3.4 5.6.7.8", HostResolver(("1.2.3.4",))),
        ("\tnameserver \t 1.2.3.4\r\n", HostResolver(("1.2.3.4",))),
        ("nameserver 1.2.3.4\nnameserver 1.2.3.4", HostResolver(("1.2.3.4", "1.2.3.4"))),
        ("nameserver 1.2.3.4 #comment", HostResolver(("1.2.3.4",))),
        ("search ", HostResolver()),
        ("search foo", HostResolver((), ("foo",))),
        ("search foo bar bat.com.\n", HostResolver((), ("foo", "bar", "bat.com"))),
        ("search foo\nsearch bar", HostResolver((), ("bar",))),
        ("search foo\nsearch", HostResolver()),
        ("search . foo.. .", HostResolver((), ("foo.",))),
        ("domain foo\nsortlist 1.2.3.0", HostResolver()),
        ("options ", HostResolver()),
        ("options ndots:5 debug", HostResolver((), (), ("ndots:5", "debug"))),
        ("options foo\noptions ndots:1 foo:2\noptions ndots:3", HostResolver((), (), ("foo:2", "ndots:3"))),
        ("options ndots:1 ndots:3", HostResolver((), (), ("ndots:3",))),
        ("option ndots:1", HostResolver()),
        ("search a\u00a0b\x1cc", HostResolver((), ("a", "b\x1cc"))),
    ],
)
def test_it_is_read_as_the_kubelet_reads_it(text: str, expected: HostResolver) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("nameserver", "a line `nameserver` without an address"),
        ("search a\n nameserver \t\n", "a line `nameserver` without an address"),
        ("search \N{REPLACEMENT CHARACTER}", "a value that is not UTF-8"),
    ],
)
def test_what_the_kubelet_would_start_no_pod_with(text: str, reason: str) -> None:
    with pytest.raises(BadHostFile, match=reason):
        parse(text)


def test_a_comment_may_be_in_any_encoding() -> None:
    assert parse("# \N{REPLACEMENT CHARACTER}\nnameserver ::1") == HostResolver(("::1",))
