# SPDX-License-Identifier: Apache-2.0
"""Whether two quantities are the same amount (apimachinery, pkg/api/resource). Pure."""

# In billionths, the finest amount that a quantity has.
_SUFFIXES = {
    "n": 1,
    "u": 10**3,
    "m": 10**6,
    "": 10**9,
    "k": 10**12,
    "M": 10**15,
    "G": 10**18,
    "T": 10**21,
    "P": 10**24,
    "E": 10**27,
    "Ki": 10**9 << 10,
    "Mi": 10**9 << 20,
    "Gi": 10**9 << 30,
    "Ti": 10**9 << 40,
    "Pi": 10**9 << 50,
    "Ei": 10**9 << 60,
}
_MAX_CHARACTERS = 32


def is_equal_quantity(one: object, other: object) -> bool:
    """Whether both are the same amount, as `0.5` and `500m`.

    What is not of this form, as `1e3`, is equal to the same text alone.
    """
    if one == other:
        return True
    first, second = _amount(str(one)), _amount(str(other))
    if first is None or second is None:
        return False
    return bool(first[0] * 10 ** second[1] == second[0] * 10 ** first[1])


def _amount(text: str) -> tuple[int, int] | None:
    """The amount as (integer, digits of it behind the point)."""
    number = text.rstrip("numkMGTPEi")
    whole, _, part = number.partition(".")
    factor = _SUFFIXES.get(text[len(number) :])
    if factor is None or len(text) > _MAX_CHARACTERS or not _is_digits(whole + part):
        return None
    return int(whole + part) * factor, len(part)


def _is_digits(text: str) -> bool:
    return text.isascii() and text.isdigit()
