# SPDX-License-Identifier: Apache-2.0
"""The messages of kata-agent as bytes, field by field against the numbers of its protocol."""

import pytest

from daemonkit.protobuf import decode, encode
from kata_bridge.channels.stock import kata_messages as m

VECTORS = [
    (m.GetIPTablesRequest(), ""),
    (m.GetIPTablesRequest(is_ipv6=True), "0801"),
    (m.GetIPTablesResponse(b"*nat"), "0a042a6e6174"),
    (m.SetIPTablesRequest(data=b"*nat\nCOMMIT\n"), "120c2a6e61740a434f4d4d49540a"),
    (m.SetIPTablesRequest(True, b"x"), "0801120178"),
    (m.SetIPTablesResponse(b"x"), "0a0178"),
    (m.SetPolicyRequest("package"), "0a077061636b616765"),
    (m.Empty(), ""),
    (m.CheckRequest("grpc"), "0a0467727063"),
    (m.VersionCheckResponse("0.0.1", "3.4.0"), "0a05302e302e311205332e342e30"),
]


@pytest.mark.parametrize(("message", "expected"), VECTORS, ids=lambda value: type(value).__name__)
def test_message_is_encoded_and_decoded(message: object, expected: str) -> None:
    assert encode(message).hex() == expected
    assert decode(type(message), bytes.fromhex(expected)) == message


def test_fields_of_newer_agents_are_skipped() -> None:
    extra = bytes.fromhex("0a05302e302e311205332e342e30" + "320c6167656e742d706f6c696379")

    assert decode(m.VersionCheckResponse, extra) == m.VersionCheckResponse("0.0.1", "3.4.0")
