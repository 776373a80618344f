# SPDX-License-Identifier: Apache-2.0
"""Inputs that are edits of a valid message.

The fuzzer changes bytes. Changed bytes of a message rarely get past the first check of a strict parser. So an
input that begins with MARK is a program: it picks a seed and edits it. Each byte string is a program, and
other inputs stand for themselves. No message of our formats begins with MARK.
"""

from collections.abc import Sequence
from random import Random

MARK = 0xFF
# Of the message that edits make. Pumped text of this length shows quadratic work.
MAX_MESSAGE_BYTES = 48 << 10
_MAX_EDITS = 64
_LARGE_PUMPS = 0xF000
# Kinds of edits from here on begin at the begin of a line.
_AT_LINES = 0x80


class _Program:
    """The bytes of an input, read from the front; zeros behind its end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 1

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    def byte(self) -> int:
        value = self._data[self._at] if self._at < len(self._data) else 0
        self._at += 1
        return value

    def word(self) -> int:
        return self.byte() << 8 | self.byte()

    def raw(self, count: int) -> bytes:
        taken = self._data[self._at : self._at + count]
        self._at += count
        return taken


def message_of(data: bytes, seeds: Sequence[bytes], tokens: Sequence[bytes]) -> bytes:
    """The message that an input stands for."""
    if data[:1] != bytes((MARK,)) or not seeds:
        return data
    program = _Program(data)
    message = seeds[program.byte() % len(seeds)]
    for _ in range(_MAX_EDITS):
        if not program:
            break
        message = _edited(message, program, seeds, tokens)[:MAX_MESSAGE_BYTES]
    return message


def one_more_edit(data: bytes, seeds: Sequence[bytes], random: Random) -> bytes:
    """A program with another edit at its end; of an input that is none, a program with one edit."""
    program = data if data[:1] == bytes((MARK,)) else bytes((MARK, random.randrange(len(seeds))))
    # Half of all edits insert a token, which is what a change of a byte does not do.
    kind = random.choice((0, _AT_LINES, random.randrange(256), random.randrange(256)))
    return program + bytes((kind,)) + random.randbytes(5)


def _edited(message: bytes, program: _Program, seeds: Sequence[bytes], tokens: Sequence[bytes]) -> bytes:
    kind, at = program.byte(), program.word() % (len(message) + 1)
    if kind >= _AT_LINES:
        at = message.rfind(b"\n", 0, at) + 1
    head, tail = message[:at], message[at:]
    match kind % _AT_LINES % 9:
        case 0:
            return head + _token(program, tokens) + tail
        case 1:
            return head + tail[program.byte() + 1 :]
        case 2:
            return head + bytes((program.byte(),)) + tail[1:]
        case 3:
            return head + program.raw(program.byte() % 32) + tail
        case 4:
            token = _token(program, tokens)
            return head + token + tail[len(token) :]
        case 5:
            size, to = program.byte() + 1, program.word() % (len(message) + 1)
            return message[:to] + tail[:size] + message[to:]
        case 6:
            other = seeds[program.byte() % len(seeds)]
            return head + other[program.word() % (len(other) + 1) :]
        case 7:
            # Pumped: one piece many times is how superlinear work shows. Most are small, to be quick.
            size, times = program.byte() % 16 + 1, program.word()
            times %= 8192 if times >= _LARGE_PUMPS else 16
            return head + tail[:size] * min(times, MAX_MESSAGE_BYTES // size) + tail[size:]
        case _:
            step = program.byte() - 128
            return head + bytes(((tail[0] + step) % 256,)) + tail[1:] if tail else head


def _token(program: _Program, tokens: Sequence[bytes]) -> bytes:
    number = program.byte()
    return tokens[number % len(tokens)] if tokens else bytes((number,))
