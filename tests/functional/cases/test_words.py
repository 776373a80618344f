# SPDX-License-Identifier: Apache-2.0
"""How the harness of the cases expands words: pages, frames, admin sentences, steps."""

import json

import pytest

from devkit.kubelet.pods import FakePod
from tests.cases.admin import AdminError, parse_admin
from tests.cases.expand import ExpandError, expand
from tests.cases.fixtures import foreign_word
from tests.cases.frames import FrameError, make_frame
from tests.cases.pages import PageError, make_page
from tests.cases.replies import BadReplyError, parse_reply
from tests.cases.steps import StepError, parse_steps

PODS = (
    FakePod("ten-a-web", "shop", "s-1", injected=("mesh-proxy",)),
    FakePod("ten-b-web", "bank", "s-2"),
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("GET /p{n} HTTP/1.1\r\n\r\n", "GET /p7 HTTP/1.1\r\n\r\n"),
        ("GET /x?a={1..3}&b=1 HTTP/1.1\r\n\r\n", "GET /x?a=1&a=2&a=3&b=1 HTTP/1.1\r\n\r\n"),
        ("GET /x?{a1..a3}=x HTTP/1.1\r\n\r\n", "GET /x?a1=x&a2=x&a3=x HTTP/1.1\r\n\r\n"),
        ("GET /a/{1..3}/b HTTP/1.1\r\n\r\n", "GET /a/1/2/3/b HTTP/1.1\r\n\r\n"),
        ("GET / HTTP/1.1\r\nX-{1..2}: y\r\n\r\n", "GET / HTTP/1.1\r\nX-1: y\r\nX-2: y\r\n\r\n"),
        ("GET / HTTP/1.1\r\nX: 3 B of a\r\n\r\n", "GET / HTTP/1.1\r\nX: aaa\r\n\r\n"),
        ("GET / HTTP/1.1\r\nX: {2 KiB of z}\r\n\r\n", f"GET / HTTP/1.1\r\nX: {'z' * 2048}\r\n\r\n"),
    ],
)
def test_expansions(text: str, expected: str) -> None:
    assert expand(text, 7) == expected


def test_a_range_backwards_is_none() -> None:
    with pytest.raises(ExpandError):
        expand("GET /?{5..1} HTTP/1.1\r\n\r\n", 1)


def test_page_sentences_build_the_page() -> None:
    runtime = json.loads(make_page("runtime PodList", "/runningpods/", PODS).body)
    assert "annotations" not in runtime["items"][0]["metadata"]
    summary = make_page("Summary with pvcRef.namespace ten-a-web, systemContainers", "/", PODS).body
    assert b'"pvcRef":{"name":"shop-data","namespace":"ten-a-web"}' in summary
    twice = make_page("podRef object with namespace given twice: ten-a-web, then ten-b-web", "/", PODS).body
    assert b'"namespace":"ten-a-web","namespace":"ten-b-web"' in twice
    whole = make_page("PodList", "/pods", PODS)
    half = make_page("first half of a PodList, then EOF", "/pods", PODS)
    assert (half.body, half.is_cut) == (whole.body[: len(whole.body) // 2], True)
    assert len(make_page("cadvisor page of 3 MiB", "/", PODS).body) >= 3 * 1024 * 1024
    assert len(json.loads(make_page("PodList of 40 pods", "/", PODS).body)["items"]) == 40
    assert b"newField" in make_page("Summary with unknown container key newField", "/", PODS).body
    assert make_page("PodList in gzip", "/", PODS).headers == [("Content-Encoding", "gzip")]


@pytest.mark.parametrize("words", ["PodList with a purple key", "unicorns", "Summary without podRef"])
def test_unknown_page_sentences_are_refused(words: str) -> None:
    with pytest.raises(PageError):
        make_page(words, "/nowhere" if words == "unicorns" else "/pods", PODS)


def test_frames() -> None:
    assert make_frame("SPDY ping") == b"\x80\x03\x00\x06\x00\x00\x00\x04hhhh"
    giant = make_frame("SPDY SYN_STREAM with a 1 MiB header block")
    assert giant[:8] == b"\x80\x03\x00\x01\x00\x10\x00\x00"
    assert len(giant) == 8 + 1024 * 1024
    assert make_frame("SPDY HEADERS frame that claims 16 MiB") == b"\x80\x03\x00\x08\x00\xff\xff\xff"
    assert make_frame("WebSocket close") == b"\x88\x80\x11\x22\x33\x44"
    assert make_frame("WebSocket binary frame on channel 255") == b"\x82\x81\x11\x22\x33\x44\xee"
    with pytest.raises(FrameError):
        make_frame("a wooden frame")


@pytest.mark.parametrize(
    ("sentence", "count"),
    [
        ("delete super pod s-1001, create same super_ns/pod with super_uid s-7777 owned by nobody", 2),
        ("delete super pod s-1001 and create the same pod with uid s-7777 owned by ten-b", 2),
        ("remove tenant ten-a", 1),
        ("tenant ten-a is removed", 1),
        ("deregister leaf leaf_a_api", 1),
        ("take leaf_a_api off the list", 1),
        ("restart the kubelet", 1),
        ("kubelet changes its certificate", 1),
        ("replace the kubelet's serving certificate", 1),
        ("kubelet presents a self-signed certificate", 1),
        ("kubelet goes away", 1),
        ("SIGHUP", 1),
    ],
)
def test_admin_sentences(sentence: str, count: int) -> None:
    assert len(parse_admin(sentence)) == count


@pytest.mark.parametrize("sentence", ["paint the kubelet", "remove tenant ten-a, dance", "delete everything"])
def test_unknown_admin_sentences_are_refused(sentence: str) -> None:
    with pytest.raises(AdminError):
        parse_admin(sentence)


@pytest.mark.parametrize(
    "step", [{"dance": 1}, {"close": "later"}, {"send": "x", "every_s": 1}, {"as": "ten_b"}]
)
def test_unknown_steps_are_refused(step: dict[str, object]) -> None:
    with pytest.raises(StepError):
        parse_steps([step], "node-1")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a log of ten-a-web", None),
        ("a log of ten-a-b-c", "ten-a-b-c"),
        ("the tenant ten-a-b", "ten-a-b"),
        ("uid ab-0001", None),
        ("uid b-0001.", "b-0001"),
        ("nothing", None),
    ],
)
def test_word_belongs_to_one_tenant(text: str, expected: str | None) -> None:
    assert foreign_word(text, {"ten-a-b", "ten-a-b-c", "b-0001"}, {"ten-a", "ten-a-web"}) == expected


def test_replies_are_read_strictly() -> None:
    whole = parse_reply(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nrest", "GET"
    )
    assert whole is not None
    assert (whole.body, whole.is_complete) == (b"abc", True)
    assert parse_reply(b"HTTP/1.1 200 OK\r\n", "GET") is None
    for bad in (
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nBroken\r\n\r\n",
        b"\x15\x03\x03\x00\x02\x02\x28",
    ):
        with pytest.raises(BadReplyError):
            parse_reply(bad, "GET")
