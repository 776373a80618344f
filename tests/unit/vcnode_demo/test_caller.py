# SPDX-License-Identifier: Apache-2.0
"""What two answers are compared by; the rest of the module is sockets (tests/functional)."""

from vcnode_demo.caller import Answer

FIELDS = (("Date", "today"), ("Content-Type", "text/plain"), ("X-Request-Id", "1"))
ANSWER = Answer("HTTP/1.1 404 Not Found", FIELDS, b"no\xff")


def test_an_answer() -> None:
    assert ANSWER.status == 404
    assert ANSWER.text == "no\ufffd"
    assert ANSWER.field("content-type") == "text/plain"
    assert ANSWER.field("Content-Length") == ""


def test_answers_are_the_same_but_for_id_and_date() -> None:
    assert ANSWER.comparable == b"HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\n\r\nno\xff"
    other = Answer(ANSWER.status_line, (("Date", "x"), FIELDS[1], ("x-request-id", "2")), ANSWER.body)
    assert other.comparable == ANSWER.comparable


def test_any_other_difference_counts() -> None:
    for other in (
        Answer("HTTP/1.1 404 Nowhere", FIELDS, ANSWER.body),
        Answer(ANSWER.status_line, (*FIELDS, ("X-More", "")), ANSWER.body),
        Answer(ANSWER.status_line, (*FIELDS[::-1], ("content-type", "x")), ANSWER.body),
        Answer(ANSWER.status_line, FIELDS, b"no"),
    ):
        assert other.comparable != ANSWER.comparable
