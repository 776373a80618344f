# SPDX-License-Identifier: Apache-2.0
"""Each value has one form, in which the API server keeps it."""

import pytest

from tenant_operator.model.quantities import canonical


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1000m", "1"),
        ("0.5", "500m"),
        ("1.5", "1500m"),
        ("100m", "100m"),
        ("2", "2"),
        ("1000", "1k"),
        ("1024Mi", "1Gi"),
        ("1536Mi", "1536Mi"),
        ("0.5Gi", "512Mi"),
        ("1G", "1G"),
        ("1000M", "1G"),
        ("1.", "1"),
        ("", None),
        ("0", None),
        ("-1", None),
        ("1e9", None),
        ("512Mi ", None),
        ("1Zi", None),
        ("1MiB", None),
        ("x", None),
        ("0.0000000001", None),
    ],
)
def test_canonical_form(text: str, expected: str | None) -> None:
    assert canonical(text) == expected


def test_a_canonical_form_stays() -> None:
    for unit in ("m", "", "k", "M", "G", "Ki", "Mi", "Gi"):
        for number in range(1, 3000, 7):
            found = canonical(f"{number}{unit}")
            assert found is not None
            assert canonical(found) == found
