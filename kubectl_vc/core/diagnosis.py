# SPDX-License-Identifier: Apache-2.0
"""One thing that is wrong, and what to do about it."""

from typing import NamedTuple


class Diagnosis(NamedTuple):
    """`subject` is an object, with its kind."""

    subject: str
    cause: str
    remedy: str
