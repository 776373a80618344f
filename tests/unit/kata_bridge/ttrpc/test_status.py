# SPDX-License-Identifier: Apache-2.0
"""An error keeps its code, also an unknown one."""

from kata_bridge.ttrpc.status import Code, TtrpcError


def test_code_of_an_error() -> None:
    assert str(TtrpcError(13, "boom")) == "INTERNAL: boom"
    assert TtrpcError(13, "boom").code is Code.INTERNAL
    assert str(TtrpcError(99, "odd")) == "UNKNOWN_99: odd"
