# SPDX-License-Identifier: Apache-2.0
"""The sentence of a kubelet's refusal, in any framing and cut anywhere."""

import pytest

from vnagent.core.framing import body_of
from vnagent.core.head import parse_response_head
from vnagent.core.kubelet_refusal import MAX_REFUSAL_BYTES, KubeletRefusal
from vnagent.core.replies import translate_refusal
from vnagent.core.requests import ContainerLogs

SENTENCE = b'container "app" in pod "shop" is waiting to start: ContainerCreating'
CHUNKED = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked"
PLAIN = b"HTTP/1.1 400 Bad Request\r\nContent-Length: %d" % len(SENTENCE)


def chunks(text: bytes, size: int) -> bytes:
    parts = [text[at : at + size] for at in range(0, len(text), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


def read(head: bytes, body: bytes, step: int) -> KubeletRefusal:
    """Feed a refusal as a connection would, in pieces of `step` bytes."""
    parsed = parse_response_head(head)
    refused, reader = KubeletRefusal(parsed), body_of(parsed)
    for at in range(0, len(body), step):
        piece = memoryview(body)[at : at + step]
        fed = reader.feed(piece)
        if (fed.take and refused.feed(piece[: fed.take])) or fed.is_end:
            break
    return refused


@pytest.mark.parametrize("step", [1, 2, 7, 10_000])
@pytest.mark.parametrize(
    ("head", "body"),
    [(PLAIN, SENTENCE), (CHUNKED, chunks(SENTENCE, 4096)), (CHUNKED, chunks(SENTENCE, 5))],
)
def test_the_sentence_of_a_pending_log(head: bytes, body: bytes, step: int) -> None:
    """A real kubelet sends it in chunks."""
    refused = read(head, body, step)
    assert refused.text() == SENTENCE
    request = ContainerLogs("web", "shop", "app", (), is_follow=False)
    reported = translate_refusal(request, 400, refused.text())
    assert reported == (400, "kubelet-rejected", "container is waiting to start: ContainerCreating")


@pytest.mark.parametrize("size", [1, 3, 1000, 4088, 4089, 4090, 4091, 4092, 4093, 5000, 100_000])
@pytest.mark.parametrize("step", [1, 1000, 200_000])
def test_an_endless_refusal_is_bounded(size: int, step: int) -> None:
    refused = read(CHUNKED, chunks(b"a" * 100_000, size), step)
    assert len(refused.body) == MAX_REFUSAL_BYTES
    text = refused.text()
    assert text == b"a" * len(text)
    assert len(text) >= MAX_REFUSAL_BYTES // 6 - 1  # of chunks of one byte five sixths are framing


def test_an_empty_refusal() -> None:
    assert read(CHUNKED, b"0\r\n\r\n", 1).text() == b""
    assert KubeletRefusal(parse_response_head(CHUNKED)).text() == b""
