# SPDX-License-Identifier: Apache-2.0
"""How two responses are compared. The rest of the module is sockets (tests/functional)."""

from vcnode_demo.tenant_client import HttpAnswer

FIELDS = (("Date", "today"), ("Content-Type", "text/plain"), ("X-Request-Id", "1"))
ANSWER = HttpAnswer("HTTP/1.1 404 Not Found", FIELDS, b"no\xff")


def test_a_response_has_status_fields_and_text() -> None:
    assert ANSWER.status == 404
    assert ANSWER.text == "no\ufffd"
    assert ANSWER.field("content-type") == "text/plain"
    assert ANSWER.field("Content-Length") == ""


def test_request_id_and_date_are_not_compared() -> None:
    assert ANSWER.comparable == b"HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\n\r\nno\xff"
    other = HttpAnswer(ANSWER.status_line, (("Date", "x"), FIELDS[1], ("x-request-id", "2")), ANSWER.body)
    assert other.comparable == ANSWER.comparable


def test_every_other_difference_is_compared() -> None:
    for other in (
        HttpAnswer("HTTP/1.1 404 Nowhere", FIELDS, ANSWER.body),
        HttpAnswer(ANSWER.status_line, (*FIELDS, ("X-More", "")), ANSWER.body),
        HttpAnswer(ANSWER.status_line, (*FIELDS[::-1], ("content-type", "x")), ANSWER.body),
        HttpAnswer(ANSWER.status_line, FIELDS, b"no"),
    ):
        assert other.comparable != ANSWER.comparable
