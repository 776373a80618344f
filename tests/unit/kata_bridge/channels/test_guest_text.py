# SPDX-License-Identifier: Apache-2.0
import pytest

from kata_bridge.channels.guest_text import MAX_SENTENCE_CHARACTERS, MAX_WORD_CHARACTERS, sentence, word


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("3.32.0-alpha+1", "3.32.0-alpha+1"),
        ("3.2\n\x1b[31m<b>", "3.231mb"),
        ("v" * (4 << 20), "v" * MAX_WORD_CHARACTERS),
        (" " * (4 << 20) + "3", ""),
    ],
)
def test_word_is_short_and_plain(text: str, kept: str) -> None:
    assert word(text) == kept


def test_sentence_is_short_and_printable() -> None:
    assert sentence("no IPv6\n in\x00 this kernel") == "no IPv6 in this kernel"
    assert len(sentence("x" * (4 << 20))) == MAX_SENTENCE_CHARACTERS
