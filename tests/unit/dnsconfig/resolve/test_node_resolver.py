# SPDX-License-Identifier: Apache-2.0
import pytest

from dnsconfig.resolve.node_resolver import (
    NO_NODE_RESOLVER,
    NodeResolver,
    NodeResolverError,
    parse,
    server_problem,
)


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
        ("search \udcff", "a value that is not UTF-8"),
    ],
)
def test_files_that_stop_the_kubelet_are_errors(text: str, reason: str) -> None:
    with pytest.raises(NodeResolverError, match=reason):
        parse(text)


def test_comments_may_have_any_encoding() -> None:
    assert parse("# \udcff\nnameserver ::1") == NodeResolver(("::1",))


def test_written_replacement_characters_are_text() -> None:
    assert parse("options \N{REPLACEMENT CHARACTER}").options == ("\N{REPLACEMENT CHARACTER}",)


@pytest.mark.parametrize(
    "server",
    [
        *("192.0.2.1", "10.0.0.10", "169.254.20.10", "169.254.169.253", "2001:db8::53", "fd00::53"),
        "::ffff:192.0.2.1",
    ],
)
def test_servers_that_pods_can_use(server: str) -> None:
    assert server_problem(parse(f"nameserver {server}\n")) == ""


@pytest.mark.parametrize("place", ["only", "first", "second"])
@pytest.mark.parametrize(
    ("server", "reason"),
    [
        *((ip, "is a loopback address") for ip in ("127.0.0.53", "127.1.2.3", "::1", "::ffff:127.0.0.1")),
        *((ip, "is no server's address") for ip in (".".join("0000"), "::", "::ffff:0:0", "0:0::0")),
        *((ip, "names an interface") for ip in ("fe80::1%3", "fe80::1%eth0", "2001:db8::1%eth0", "::1%lo")),
        *((ip, "is a link-local address") for ip in ("fe80::1", "FE80:0::1", "febf::1")),
        *((ip, "is a multicast address") for ip in ("224.0.0.1", "ff02::fb")),
        *(
            (ip, "is not an IP address")
            for ip in ("127.1", "0x7f000001", "dns.example.org", "10.0.0.1:53", "[::1]")
        ),
    ],
)
def test_servers_that_pods_cannot_use(server: str, reason: str, place: str) -> None:
    other = "nameserver 192.0.2.1\n"
    text = (
        (other if place == "second" else "") + f"nameserver {server}\n" + (other if place == "first" else "")
    )
    assert server_problem(parse(text)).startswith(f"its nameserver {server} {reason}")


def test_a_file_without_a_server_is_a_problem() -> None:
    assert (
        server_problem(parse("search a\n")) == "it has no nameserver; pods of policy Default resolve no names"
    )
    assert server_problem(NO_NODE_RESOLVER) == ""
