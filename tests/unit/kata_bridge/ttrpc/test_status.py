# SPDX-License-Identifier: Apache-2.0
"""A refusal keeps its code, also one that has no name here."""

from kata_bridge.ttrpc.status import Code, TtrpcError


def test_codes() -> None:
    assert str(TtrpcError(13, "boom")) == "INTERNAL: boom"
    assert TtrpcError(13, "boom").code is Code.INTERNAL
    assert str(TtrpcError(99, "odd")) == "UNKNOWN_99: odd"
