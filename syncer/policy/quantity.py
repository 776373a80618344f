# SPDX-License-Identifier: Apache-2.0
"""Quantities of Kubernetes, as whole billionths: the precision that the API server keeps. Pure.

    quantity = sign? (digits | digits "." digits? | "." digits) suffix?
    suffix   = "Ki" | "Mi" | "Gi" | "Ti" | "Pi" | "Ei"
             | "n" | "u" | "m" | "k" | "M" | "G" | "T" | "P" | "E"
             | ("e" | "E") sign? digits

What is finer than a billionth is rounded away from zero; what is above 2^63 - 1 counts as that.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

UNIT = 10**9
"""Of a quantity of 1."""
MAX_NANOS = ((1 << 63) - 1) * UNIT

# The API server has no such limit. What is longer is written by no client, and costs time to read.
_MAX_CHARS = 128
_MAX_EXPONENT = 64
_NANOS = 9
_GRAMMAR = re.compile(
    r"([+-]?)([0-9]*+)(?:\.([0-9]*+))?(?:([KMGTPE]i)|([numkMGTPE])|[eE]([+-]?[0-9]++))?", re.ASCII
)
_BINARY: Mapping[str, int] = MappingProxyType(
    {f"{letter}i": 1024**power for power, letter in enumerate("KMGTPE", start=1)}
)
_DECIMAL: Mapping[str, int] = MappingProxyType(
    {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
)


def parse(value: Any) -> int | None:
    """A quantity in billionths; None if it is not one. JSON's whole numbers are quantities, too."""
    if type(value) is int:
        return max(-MAX_NANOS, min(value * UNIT, MAX_NANOS))
    if type(value) is not str or len(value) > _MAX_CHARS:
        return None
    match = _GRAMMAR.fullmatch(value)
    if match is None:
        return None
    sign, whole, fraction, binary, decimal, exponent = match.groups()
    digits = whole + (fraction or "")
    if not digits:
        return None
    power = _NANOS - len(fraction or "")
    if decimal:
        power += _DECIMAL[decimal]
    elif exponent:
        # Far beyond the largest and the smallest quantity, and soon computed.
        power += max(-_MAX_EXPONENT - _MAX_CHARS, min(int(exponent), _MAX_EXPONENT + _MAX_CHARS))
    found: int = int(digits) * _BINARY.get(binary or "", 1)
    if power >= 0:
        found *= int(10**power)
    else:
        found = -(-found // int(10**-power))
    found = min(found, MAX_NANOS)
    return -found if sign == "-" else found


def text(nanos: int) -> str:
    """A quantity as Kubernetes writes it, without binary suffixes."""
    for suffix, size in (("", UNIT), ("m", 10**6), ("u", 10**3)):
        if nanos % size == 0:
            return f"{nanos // size}{suffix}"
    return f"{nanos}n"
