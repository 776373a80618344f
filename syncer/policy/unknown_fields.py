# SPDX-License-Identifier: Apache-2.0
"""Refuses what has a field that `fields` does not know: what it does is not known. Pure.

It is of a newer Kubernetes than this was written for. The SyncPolicy may allow it (`spec.fields.allowed`).
"""

from collections.abc import Iterator, Mapping
from typing import Any

from syncer.core.objects import Object
from syncer.core.plan import Refusal
from syncer.policy.fields import FIELDS, KINDS
from syncer.policy.patterns import Patterns
from syncer.policy.refusal_list import RefusalList, shown

# Of each type: the names of its fields, and the types of those that have one.
_NAMES: Mapping[str, tuple[frozenset[str], Mapping[str, str]]] = {
    type_name: (
        frozenset(fields),
        {name: field.type_name for name, field in fields.items() if field.type_name},
    )
    for type_name, fields in FIELDS.items()
}


def refusals(kind: str, tenant: Object, allowed: Patterns) -> tuple[Refusal, ...]:
    """The fields that are not known. `allowed` are paths such as `Pod.spec.containers.newField`.

    Of a kind that is not in KINDS, as of custom resources, every field is the operator's to answer for, who
    has it synced.
    """
    found = RefusalList()
    if kind in KINDS:
        for path, plain in _unknown(kind, tenant):
            if not allowed.match(plain):
                found.add(path, "a field that is not known here", "fields.allowed")
            if found.is_full:
                break
    return found.done()


def _unknown(kind: str, tenant: Object) -> Iterator[tuple[str, str]]:
    """Unknown fields: (path, path of the kind without indices)."""
    # Not by recursion: an object of the tenant's is as deep as it likes, if it has such types.
    waiting: list[tuple[str, str, str, Any]] = [("", kind, kind, tenant)]
    while waiting:
        path, plain, type_name, value = waiting.pop()
        if type(value) is list:
            waiting += [(f"{path}[{index}]", plain, type_name, each) for index, each in enumerate(value)]
            continue
        if type(value) is not dict:
            continue  # the super cluster's API server refuses it
        known, typed = _NAMES[type_name]
        if not value.keys() <= known:
            for name in value:
                if name not in known:
                    yield f"{path}.{shown(name)}" if path else shown(name), f"{plain}.{shown(name)}"
        for name in filter(typed.__contains__, value):
            if (below := value[name]) is not None:
                where = f"{path}.{name}" if path else name
                waiting.append((where, f"{plain}.{name}", typed[name], below))
