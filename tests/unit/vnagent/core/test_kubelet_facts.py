# SPDX-License-Identifier: Apache-2.0
"""What a kubelet reports of itself: read exactly, and unknown where it reports nothing."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devkit.kubelet.pods import page_for
from vnagent.core.head import ResponseHead, parse_response_head
from vnagent.core.kubelet_facts import (
    GATES,
    MAX_PROTOCOLS,
    KubeletFacts,
    StreamProtocols,
    configured_of,
    gates_of,
    version_of,
)
from vnagent.core.requests import Endpoint, Protocol, Stream, Upgrade

BUILD = b'kubernetes_build_info{build_date="x",git_version="%s",platform="linux/amd64"} 1\n'
GATE = b'kubernetes_feature_enabled{name="KubeletFineGrainedAuthz",stage="%s"} %s\n'


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        (b"", None),
        (BUILD % b"v1.34.4", "v1.34.4"),
        (b"# HELP kubernetes_build_info x\n" + BUILD % b"v1.33.1-eks-a1b2+c", "v1.33.1-eks-a1b2+c"),
        # No line end, as a page that was cut at a row has.
        ((BUILD % b"v1.34.4").rstrip(), "v1.34.4"),
        (BUILD % b"1.34.4", None),
        (BUILD % b"v1.34.4 <script>", None),
        (BUILD % (b"v1.34." + b"4" * 100), None),
        # In another label's value, and in a comment.
        (b'x{a="kubernetes_build_info{git_version=\\"v1.0.0\\"} 1"} 1\n', None),
        (b"# " + BUILD % b"v1.34.4", None),
        (b'kubernetes_build_info{git="v1.34.4"} 1\n', None),
    ],
)
def test_version(page: bytes, expected: str | None) -> None:
    assert version_of(page) == expected


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        (b"", {}),
        (GATE % (b"BETA", b"1"), {"KubeletFineGrainedAuthz": True}),
        (GATE % (b"ALPHA", b"0"), {"KubeletFineGrainedAuthz": False}),
        (GATE % (b"", b"1"), {"KubeletFineGrainedAuthz": True}),
        (GATE % (b"BETA", b"NaN"), {}),
        (GATE % (b"BETA", b"2"), {}),
        (b'kubernetes_feature_enabled{name="KubeletFineGrainedAuthzNot",stage="BETA"} 1\n', {}),
        (b'kubernetes_feature_enabled{stage="BETA",name="KubeletFineGrainedAuthz"} 1\n', {}),
    ],
)
def test_gates(page: bytes, expected: dict[str, bool]) -> None:
    assert gates_of(page) == expected


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"enableDebuggingHandlers": True}, (True, 0)),
        ({"enableDebuggingHandlers": False, "readOnlyPort": 10255}, (False, 10255)),
        ({"enableDebuggingHandlers": True, "readOnlyPort": "10255"}, (True, None)),
        ({"enableDebuggingHandlers": True, "readOnlyPort": True}, (True, None)),
        ({"enableDebuggingHandlers": True, "readOnlyPort": 70000}, (True, None)),
        # Of another form: a missing port says nothing.
        ({}, (None, None)),
        ({"readOnlyPort": 10255}, (None, None)),
        ({"enableDebuggingHandlers": "yes"}, (None, None)),
        ([], (None, None)),
        (None, (None, None)),
    ],
)
def test_configuration(config: object, expected: tuple[bool | None, int | None]) -> None:
    assert configured_of(json.dumps({"kubeletconfig": config}).encode()) == expected


@pytest.mark.parametrize("page", [b"", b"[]", b"7", b"{", b"[" * 100_000, b"\xff\xfe"])
def test_what_is_no_configuration(page: bytes) -> None:
    assert configured_of(page) == (None, None)


@given(st.binary(max_size=200))
def test_any_page_is_read(page: bytes) -> None:
    version_of(page)
    gates_of(page)
    configured_of(page)


def test_unknown_is_null_and_known_is_not() -> None:
    assert KubeletFacts(problems=("/metrics: kubelet-refused",)).document() == {
        "version": None,
        "featureGates": dict.fromkeys(GATES),
        "enableDebuggingHandlers": None,
        "readOnlyPort": None,
        "problems": ["/metrics: kubelet-refused"],
    }
    metrics = page_for("/metrics", (), "node-1")
    configz = page_for("/configz", (), "node-1")
    assert metrics is not None
    assert configz is not None
    facts = KubeletFacts(version_of(metrics[1]), gates_of(metrics[1]), *configured_of(configz[1]))
    assert facts.document() == {
        "version": "v1.34.4",
        "featureGates": {
            "ExtendWebSocketsToKubelet": None,
            "KubeletFineGrainedAuthz": True,
            "PodLogsQuerySplitStreams": False,
        },
        "enableDebuggingHandlers": True,
        "readOnlyPort": 0,
        "problems": [],
    }


def stream(protocol: Protocol, *offered: str, endpoint: Endpoint = Endpoint.EXEC) -> Stream:
    return Stream(endpoint, "web", "shop", None, "app", (), Upgrade(protocol, offered, None))


def answers(protocols: StreamProtocols) -> list[tuple[object, ...]]:
    return [tuple(each.values()) for each in protocols.document()]


def test_stream_protocols_are_those_of_the_last_answer() -> None:
    protocols = StreamProtocols()
    v5 = stream(Protocol.WEBSOCKET, "v5.channel.k8s.io")
    protocols.refused(v5)
    assert answers(protocols) == [("exec", "websocket", "v5.channel.k8s.io", False)]
    protocols.accepted(v5, switched("Sec-WebSocket-Protocol: v5.channel.k8s.io"))
    spdy = stream(Protocol.SPDY, "v5.channel.k8s.io", "v4.channel.k8s.io")
    protocols.accepted(spdy, switched("X-Stream-Protocol-Version: v4.channel.k8s.io"))
    forward = stream(Protocol.WEBSOCKET, endpoint=Endpoint.PORT_FORWARD)
    protocols.accepted(forward, switched())
    assert answers(protocols) == [
        ("exec", "SPDY/3.1", "v4.channel.k8s.io", True),
        ("exec", "websocket", "v5.channel.k8s.io", True),
        ("portForward", "websocket", "", True),
    ]


def test_what_is_not_known_is_not_noted() -> None:
    protocols = StreamProtocols()
    # It may have read the first alone.
    protocols.refused(stream(Protocol.WEBSOCKET, "v5.channel.k8s.io", "v4.channel.k8s.io"))
    protocols.refused(stream(Protocol.WEBSOCKET))
    protocols.accepted(
        stream(Protocol.WEBSOCKET, "v4.channel.k8s.io"), switched("Sec-WebSocket-Protocol: ten-b")
    )
    assert protocols.document() == []


def test_stream_protocols_are_bounded() -> None:
    protocols = StreamProtocols()
    for number in range(1, 100):
        protocols.refused(stream(Protocol.WEBSOCKET, f"v{number}.channel.k8s.io"))
    assert len(protocols.document()) == MAX_PROTOCOLS


def switched(*lines: str) -> ResponseHead:
    return parse_response_head("\r\n".join(["HTTP/1.1 101 Switching Protocols", *lines]).encode())
