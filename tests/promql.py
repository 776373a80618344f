# SPDX-License-Identifier: Apache-2.0
"""What alerts and dashboards ask Prometheus for: metrics, and the labels that they use of each."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.packages import ROOT
from tests.reference import metrics

FOLDER = ROOT / "packaging" / "observability"

# Labels of a target: Prometheus adds them, or a job of packaging/observability.
TARGET_LABELS = frozenset({"job", "instance", "node"})
# Prometheus makes these itself.
OWN = {"up": (), "ALERTS": ("alertname", "alertstate", "severity")}

_SELECTOR = re.compile(r"\b(?P<name>(?:vcnode|process|python)_\w+|up|ALERTS)\b(?:\{(?P<matchers>[^}]*)\})?")
_MATCHER = re.compile(r"""(?P<label>\w+)\s*(?P<sign>=~|!~|!=|=)\s*"(?P<value>[^"]*)\"""")
_GROUPED = re.compile(r"\b(?:by|on|group_left)\s*\((?P<labels>[^)]*)\)")
_SERIES = re.compile(r"_(?:bucket|count|sum)$")


@dataclass(frozen=True, slots=True)
class Selector:
    """`matchers` are label, sign and value."""

    name: str
    matchers: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True)
class Query:
    """An expression, and where it stands."""

    place: str
    text: str

    @property
    def selectors(self) -> tuple[Selector, ...]:
        return tuple(
            Selector(found["name"], tuple(_MATCHER.findall(found["matchers"] or "")))
            for found in _SELECTOR.finditer(_GROUPED.sub("", self.text))
        )

    @property
    def grouped(self) -> tuple[str, ...]:
        """The labels of all `by`."""
        return tuple(
            label.strip()
            for found in _GROUPED.finditer(self.text)
            for label in found["labels"].split(",")
            if label.strip()
        )


def rules() -> list[dict[str, Any]]:
    """The alerts."""
    groups = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["spec"]["groups"]
    return [rule for group in groups for rule in group["rules"]]


def dashboards() -> dict[Path, dict[str, Any]]:
    return {path: json.loads(path.read_text()) for path in sorted((FOLDER / "dashboards").glob("*.json"))}


@cache
def queries() -> tuple[Query, ...]:
    """Of all alerts and dashboards."""
    alerts = (Query(rule["alert"], rule["expr"]) for rule in rules())
    return (*alerts, *(each for path, dashboard in dashboards().items() for each in _of(path, dashboard)))


def _of(path: Path, dashboard: dict[str, Any]) -> Iterator[Query]:
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            yield Query(f"{path.name}: {panel['title']}", target["expr"])
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield Query(f"{path.name}: ${variable['name']}", variable["definition"])


@cache
def labels_of_metrics() -> dict[str, frozenset[str]]:
    """The labels of each series that a scrape can have, by its name."""
    found: dict[str, frozenset[str]] = {name: frozenset(labels) for name, labels in OWN.items()}
    for metric in (*metrics.registered(), *metrics.of_the_library()):
        own = frozenset(metric.labels)
        if metric.type == "histogram":
            found |= {f"{metric.name}_bucket": own | {"le"}}
            found |= dict.fromkeys((f"{metric.name}_count", f"{metric.name}_sum"), own)
        else:
            found[metric.name] = own
    return found


def faults(query: Query) -> list[str]:
    """Metrics and labels that no scrape has."""
    known, problems = labels_of_metrics(), []
    usable: set[str] = set(TARGET_LABELS)
    for selector in query.selectors:
        labels = known.get(selector.name)
        if labels is None:
            problems.append(f"{query.place}: no metric {selector.name}")
            continue
        usable |= labels
        problems += (
            f"{query.place}: {selector.name} has no label {label}"
            for label, _, _ in selector.matchers
            if label not in labels | TARGET_LABELS
        )
    problems += (f"{query.place}: no label {label}" for label in query.grouped if label not in usable)
    return problems


def base_name(series: str) -> str:
    """The metric that a series belongs to."""
    return _SERIES.sub("", series)
