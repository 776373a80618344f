# SPDX-License-Identifier: Apache-2.0
"""Inputs as programs that edit a seed."""

from random import Random

import pytest

from tests.fuzz.edits import MAX_MESSAGE_BYTES, message_of, one_more_edit

SEEDS = (b"GET /a HTTP/1.1", b"POST", b"a\nbcd\ne")
TOKENS = (b"\r\n", b"--")


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("", b"GET /a HTTP/1.1"),
        ("01", b"POST"),
        ("01 00 0001 01", b"P--OST"),
        ("01 01 0001 01", b"PT"),
        ("01 02 0001 58", b"PXST"),
        ("01 03 0004 02 6162", b"POSTab"),
        ("01 04 0001 01", b"P--T"),
        ("01 05 0001 01 0004", b"POSTOS"),
        ("01 06 0002 00 0003", b"PO /a HTTP/1.1"),
        ("01 07 0003 00 0004", b"POSTTTT"),
        ("01 08 0000 81", b"QOST"),
        ("02 80 0004 01", b"a\n--bcd\ne"),
        ("02 80 0001 01", b"--a\nbcd\ne"),
        ("02 81 0004 03", b"a\ne"),
        ("01 00 0001 01 01 0000 00", b"--OST"),
        # What is missing of a program is zeros.
        ("01 00", b"\r\nPOST"),
    ],
)
def test_a_program_edits_a_seed(program: str, expected: bytes) -> None:
    assert message_of(b"\xff" + bytes.fromhex(program), SEEDS, TOKENS) == expected


@pytest.mark.parametrize("data", [b"", b"GET", b"\x00\xff"])
def test_other_inputs_stand_for_themselves(data: bytes) -> None:
    assert message_of(data, SEEDS, TOKENS) == data


def test_another_edit_keeps_the_program() -> None:
    random = Random(1)  # noqa: S311 - test data, no secret
    first = one_more_edit(b"GET", SEEDS, random)
    assert first[0] == 0xFF
    assert one_more_edit(first, SEEDS, random).startswith(first)


def test_edits_make_no_message_above_the_limit() -> None:
    pump = bytes.fromhex("07 0000 0f ffff")
    assert len(message_of(b"\xff\x00" + pump * 9, SEEDS, TOKENS)) == MAX_MESSAGE_BYTES
