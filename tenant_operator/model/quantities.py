# SPDX-License-Identifier: Apache-2.0
"""Quantities of resources, as the API server keeps them (apimachinery, resource.Quantity).

It writes `1000m` as `1` and `1024Mi` as `1Gi`: what is applied in another form never looks settled.
"""

import re
from fractions import Fraction

_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
_QUANTITY = re.compile(r"([0-9]{1,18}(?:\.[0-9]{0,9})?)([a-zA-Z]{0,2})")


def canonical(text: str) -> str | None:
    """The form in which the API server keeps it; None if it is no quantity of a resource, or nothing."""
    found = _QUANTITY.fullmatch(text)
    if found is None:
        return None
    number, unit = Fraction(found[1].rstrip(".")), found[2]
    if number <= 0:
        return None
    if unit in _BINARY and unit:
        return _binary(number * Fraction(1024) ** _BINARY.index(unit))
    if unit not in _DECIMAL:
        return None
    return _decimal(number * Fraction(1000) ** (_DECIMAL.index(unit) - _DECIMAL.index("")))


def _binary(value: Fraction) -> str | None:
    if value.denominator != 1:
        return _decimal(value)
    whole, place = int(value), 0
    while whole % 1024 == 0 and place < len(_BINARY) - 1:
        whole, place = whole // 1024, place + 1
    return f"{whole}{_BINARY[place]}"


def _decimal(value: Fraction) -> str | None:
    nano = value * 1_000_000_000
    if nano.denominator != 1:
        return None
    whole, place = int(nano), 0
    while whole % 1000 == 0 and place < len(_DECIMAL) - 1:
        whole, place = whole // 1000, place + 1
    return f"{whole}{_DECIMAL[place]}"
