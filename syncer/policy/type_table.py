# SPDX-License-Identifier: Apache-2.0
"""Tables of the fields of Kubernetes' types, written as one text for each type. Pure."""

from collections.abc import Callable, Mapping
from typing import TypeVar

T = TypeVar("T")


def fields_by_type(types: Mapping[str, str], field: Callable[[str, str], T]) -> dict[str, dict[str, T]]:
    """What `field` makes of each field of each type, by type and name.

    A type's text names its fields; with a colon, also the type of the field's value, or of its items. `field`
    gets the path, as `PodStatus.phase`, and the type of the value, empty for plain values.
    """
    found: dict[str, dict[str, T]] = {}
    for type_name, text in types.items():
        found[type_name] = {}
        for entry in text.split():
            name, _, below = entry.partition(":")
            found[type_name][name] = field(f"{type_name}.{name}", below)
    return found
