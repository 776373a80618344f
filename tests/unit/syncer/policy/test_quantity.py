# SPDX-License-Identifier: Apache-2.0
"""Quantities, as k8s.io/apimachinery/pkg/api/resource reads them."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncer.policy import quantity
from syncer.policy.quantity import MAX_NANOS
from tests.unit.syncer.policy.arbitrary_json import JSON

NANO, MICRO, MILLI, ONE = 1, 10**3, 10**6, 10**9

READ = [
    ("0", 0),
    ("1", ONE),
    ("+1", ONE),
    ("-1", -ONE),
    ("1n", NANO),
    ("1u", MICRO),
    ("1m", MILLI),
    ("500m", 500 * MILLI),
    ("1k", 1_000 * ONE),
    ("1M", 1_000_000 * ONE),
    ("1G", 10**9 * ONE),
    ("1T", 10**12 * ONE),
    ("1P", 10**15 * ONE),
    ("1E", 10**18 * ONE),
    ("1Ki", 1024 * ONE),
    ("1Mi", 1024**2 * ONE),
    ("1Gi", 1024**3 * ONE),
    ("1Ti", 1024**4 * ONE),
    ("1Pi", 1024**5 * ONE),
    ("1Ei", 1024**6 * ONE),
    ("1.5Gi", 1536 * 1024**2 * ONE),
    ("0.5", 500 * MILLI),
    (".5", 500 * MILLI),
    ("5.", 5 * ONE),
    ("1.", ONE),
    ("0.1Ki", 102_400 * MILLI),
    ("1e3", 1_000 * ONE),
    ("1E3", 1_000 * ONE),
    ("1E+3", 1_000 * ONE),
    ("1e-3", MILLI),
    ("12.5e-1", 1_250 * MILLI),
    ("1E0", ONE),
    ("007", 7 * ONE),
    # Rounded away from zero, to billionths.
    ("0.1n", NANO),
    ("1.1n", 2 * NANO),
    ("-0.1n", -NANO),
    ("0.0000000001", NANO),
    ("1e-100", NANO),
    ("0e100", 0),
    # No more than 2^63 - 1.
    ("9223372036854775807", MAX_NANOS),
    ("9223372036854775808", MAX_NANOS),
    ("8Ei", MAX_NANOS),
    ("100E", MAX_NANOS),
    ("-100E", -MAX_NANOS),
    ("1e100", MAX_NANOS),
    ("1e999999999999", MAX_NANOS),
    ("1e-999999999999", NANO),
    # JSON's numbers.
    (3, 3 * ONE),
    (-3, -3 * ONE),
    (1 << 200, MAX_NANOS),
]

UNREADABLE: list[Any] = [
    "",
    " ",
    "1 ",
    " 1",
    "1 Gi",
    ".",
    "+",
    "-",
    "--1",
    "Gi",
    "m",
    "1K",
    "1mi",
    "1ki",
    "1ni",
    "1i",
    "1MiB",
    "1.2.3",
    "1e",
    "1e+",
    "1e1.5",
    "1e3k",
    "1E3Ki",
    "1,5",
    "0x10",
    "1_000",
    "Inf",
    "NaN",
    "\u0661",
    "1\n",
    "1" * 129,
    None,
    True,
    1.5,
    [],
    {},
]


@pytest.mark.parametrize(("value", "nanos"), READ)
def test_parse(value: Any, nanos: int) -> None:
    assert quantity.parse(value) == nanos


@pytest.mark.parametrize("value", UNREADABLE)
def test_unreadable(value: Any) -> None:
    assert quantity.parse(value) is None


@pytest.mark.parametrize(
    ("nanos", "text"),
    [
        (0, "0"),
        (4 * ONE, "4"),
        (1_500 * MILLI, "1500m"),
        (-MILLI, "-1m"),
        (MICRO, "1u"),
        (1_001, "1001n"),
        (1024**3 * ONE, "1073741824"),
    ],
)
def test_text(nanos: int, text: str) -> None:
    assert quantity.text(nanos) == text


@given(st.integers(-MAX_NANOS, MAX_NANOS))
def test_text_is_read_as_the_same(nanos: int) -> None:
    assert quantity.parse(quantity.text(nanos)) == nanos


@given(st.decimals(-(10**12), 10**12, places=9))
def test_decimals_are_exact(value: Decimal) -> None:
    assert quantity.parse(f"{value:f}") == int(value.scaleb(9))


@given(JSON | st.text(alphabet="0123456789.+-eEinumkKMGTP", max_size=12))
def test_any_json_has_an_answer(value: Any) -> None:
    found = quantity.parse(value)
    assert found is None or abs(found) <= MAX_NANOS
