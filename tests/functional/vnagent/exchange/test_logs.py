# SPDX-License-Identifier: Apache-2.0
"""The TLS records of a relayed log."""

from types import SimpleNamespace
from typing import cast

import pytest

from tenancy.ownership import Owned
from vnagent.core.head import Fields, ResponseHead
from vnagent.core.kubelet_request import KubeletRequests
from vnagent.core.requests import ContainerLogs
from vnagent.exchange.logs import LogExchange
from vnagent.exchange.port import ClientPort
from vnagent.state import AgentState
from vnagent.upstream.pool import UpstreamPool


def _relayed(pieces: list[bytes]) -> list[bytes]:
    """What each write would encrypt as a record, of a log whose coded body comes in these pieces."""
    records: list[bytes] = []
    transport = SimpleNamespace(
        write=lambda data: records.append(bytes(data)),
        flush=lambda: None,
        await_if_congested=lambda: False,
        group=None,
    )
    client = SimpleNamespace(transport=transport, caller=None, begun_s=0.0, finish=lambda **_: None)
    log = SimpleNamespace(next_request_id=lambda: "1", record=lambda *_: None, date="")
    pool = SimpleNamespace(requests=KubeletRequests("node"), acquire=lambda *_, **__: object())
    exchange = LogExchange(
        cast(ClientPort, client),
        cast(AgentState, SimpleNamespace(request_log=log, is_draining=False)),
        cast(UpstreamPool, pool),
        ContainerLogs("shop", "web", "main", (), is_follow=True),
        cast(Owned, SimpleNamespace(super_namespace="acme-shop", super_name="web")),
    )
    exchange.start()
    exchange.on_response(ResponseHead(200, Fields((), {}), None, is_chunked=True))
    for number, piece in enumerate(pieces, start=1):
        exchange.on_body(memoryview(piece))
        if number == len(pieces):
            exchange.on_response_end()
        exchange.on_batch_end()
    return records


@pytest.mark.parametrize(
    "pieces",
    [
        [b"6\r\nalive\n\r\n0\r\n"],
        [b"6\r\nalive\n\r\n", b"0\r\n"],
        [b"6\r\nalive", b"\n\r\n0\r\n"],
        [b"2711\r\n" + b"x" * 10_001 + b"\r\n0\r\n"],
    ],
)
def test_last_chunk_is_a_record_of_its_own(pieces: list[bytes]) -> None:
    """Go reports the end with the last bytes if one record has both: a WebSocket then loses those."""
    records = _relayed(pieces)
    assert records[-1] == b"0\r\n\r\n"
    assert b"".join(records).endswith(b"\r\n\r\n" + b"".join(pieces) + b"\r\n")


def test_last_chunk_that_comes_in_two_pieces() -> None:
    assert b"".join(_relayed([b"6\r\nalive\n\r\n0\r", b"\n"])).endswith(b"alive\n\r\n0\r\n\r\n")


@pytest.mark.parametrize("line", [b"", b"6\r\nalive\n\r\n", b"2711\r\n" + b"x" * 10_001 + b"\r\n"])
def test_the_end_of_a_log_names_no_super_namespace(line: bytes) -> None:
    """A kubelet has answered 200 before it finds that the file is gone."""
    path = "/var/log/pods/acme-shop_web_e226d19c/main/0.log"
    error = f'failed to open log file "{path}": open {path}: no such file or directory'.encode()
    relayed = b"".join(_relayed([line + b"%x\r\n%s\r\n0\r\n" % (len(error), error)]))
    assert relayed.endswith(b"\r\n\r\n" + line + b"1c\r\nvcnode: the log file is gone\r\n0\r\n\r\n")
