# SPDX-License-Identifier: Apache-2.0
"""`kubectl vc get`: a row for each VirtualCluster."""

import datetime as dt
from collections.abc import Sequence

from kubectl_vc.core.view import READY, SLEEPING, TenantView, parsed_time, text

_GAP = "   "
_EMPTY = "-"


def table(views: Sequence[TenantView], now: dt.datetime, *, has_namespaces: bool, is_wide: bool) -> list[str]:
    """The lines, with a header."""
    header = ["NAME", "PHASE", "READY", "VERSION", "CLASS", "SLEEPING SINCE", "AGE"]
    rows = [[*([each.namespace] * has_namespaces), *_cells(each, now)] for each in views]
    header = [*(["NAMESPACE"] * has_namespaces), *header]
    if is_wide:
        header += ["KUBERNETES", "ENDPOINT", "CLUSTER NAMESPACE"]
        rows = [[*row, *_wide_cells(each)] for row, each in zip(rows, views, strict=True)]
    rows = [[*row, waits_for(each)] for row, each in zip(rows, views, strict=True)]
    return aligned([[*header, "WAITS FOR"], *rows])


def waits_for(view: TenantView) -> str:
    """Why it is not ready, in the operator's words; how to wake it if it sleeps; empty if neither."""
    if view.is_deleting:
        left = ", ".join(view.finalizers)
        return view.message or view.condition(READY).message or f"its finalizers are left: {left}"
    sleeping = view.condition(SLEEPING)
    if sleeping.is_true:
        return sleeping.message or f"asleep; to wake it: kubectl vc wake {view.name} -n {view.namespace}"
    if not view.conditions:
        return view.message or ("" if view.phase == "Running" else "vc-operator has not observed it")
    ready = view.condition(READY)
    if not ready.is_true:
        return ready.line()
    return next((each.line() for each in view.conditions if not each.is_true and each.type != SLEEPING), "")


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns as kubectl prints them; the last has any width."""
    cleaned = [[printable(cell) or _EMPTY for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cleaned, strict=True)]
    lines = []
    for row in cleaned:
        cells = [cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=False)]
        lines.append(_GAP.join([*cells, row[-1]]).rstrip())
    return lines


def printable(line: str) -> str:
    """The text on one line without control characters: others write names of classes and messages."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in line)


def age(since: str, now: dt.datetime) -> str:
    """How long ago, as kubectl shows it: `5d`, `3h12m`, `40s`."""
    began = parsed_time(since)
    if began is None:
        return ""
    seconds = max(0, int((now - began).total_seconds()))
    if seconds < 120:
        return f"{seconds}s"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if hours < 3:
        return (
            f"{hours}h{minutes % 60}m" if hours and minutes % 60 else f"{hours}h" if hours else f"{minutes}m"
        )
    return f"{hours}h" if days < 2 else f"{days}d"


def _cells(view: TenantView, now: dt.datetime) -> list[str]:
    return [
        view.name,
        "Terminating" if view.is_deleting else view.phase or "Pending",
        view.condition(READY).status,
        _version(view),
        view.size_class,
        age(view.sleeping_since, now),
        age(text(view.value, "metadata", "creationTimestamp"), now),
    ]


def _version(view: TenantView) -> str:
    if view.version and view.version != view.desired_version:
        return f"{view.version} to {view.desired_version}"
    return view.desired_version


def _wide_cells(view: TenantView) -> list[str]:
    return [
        text(view.value, "status", "kubernetesVersion"),
        text(view.value, "status", "endpoint"),
        view.root_namespace,
    ]
