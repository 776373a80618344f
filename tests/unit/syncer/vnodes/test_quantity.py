# SPDX-License-Identifier: Apache-2.0
import pytest

from syncer.vnodes.quantity import is_equal_quantity


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1", "1"),
        ("0.5", "500m"),
        ("1000m", "1"),
        ("1024Mi", "1Gi"),
        ("1000k", "1M"),
        ("1.5Gi", "1536Mi"),
        (".5", "0.50"),
        ("1e3", "1e3"),
        (4, "4"),
    ],
)
def test_same_amounts(one: object, other: object) -> None:
    assert is_equal_quantity(one, other)
    assert is_equal_quantity(other, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1", "2"),
        ("1G", "1Gi"),
        ("1m", "1M"),
        ("", "0"),
        ("x", "0"),
        ("1e3", "1k"),
        ("1mm", "1"),
        ("1.2.3", "1"),
        ("-1", "1"),
        ("9" * 33, "9" * 34),
    ],
)
def test_other_amounts_and_texts(one: object, other: object) -> None:
    assert not is_equal_quantity(one, other)
    assert not is_equal_quantity(other, one)
