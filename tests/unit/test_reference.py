# SPDX-License-Identifier: Apache-2.0
"""docs/reference matches the code, and the schemas accept the daemons' configurations."""

import ast
import copy
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from daemonkit.config.binding import ConfigError
from tenancy.document import TenantError
from tests import vocabulary
from tests.examples import DIRECTORY as EXAMPLES
from tests.packages import PACKAGES, ROOT
from tests.reference import configuration, events, metrics, pages
from tests.reference.kinds import KINDS, FileKind

Validator = jsonschema.Draft202012Validator

# One value of each type that YAML has.
_OTHERS: tuple[Any, ...] = (None, "text", 7, 7.5, True, [], {})


def test_reference_is_current() -> None:
    assert pages.stale() == [], "run make reference"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_key_has_a_doc(kind: FileKind) -> None:
    assert [path for path, key in configuration.leaves(kind.cls) if not key.setting.doc] == []


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_schema_accepts_the_example(kind: FileKind) -> None:
    Validator.check_schema(configuration.schema(kind))
    Validator(configuration.schema(kind)).validate(_example(kind))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_schema_refuses_what_the_daemon_refuses(kind: FileKind) -> None:
    """Each value of the example in turn is left out, misspelt, and replaced by one of another type.

    Only the daemon checks relations between keys, so it may refuse more.
    """
    validator = Validator(configuration.schema(kind))
    for changed in _changed(_example(kind)):
        try:
            kind.parse(changed)
        except (ConfigError, TenantError):
            continue
        validator.validate(changed)
    for broken in _broken(_example(kind)):
        assert not validator.is_valid(broken), broken
        with pytest.raises((ConfigError, TenantError)):
            kind.parse(broken)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_schema_refuses_the_same_empty_texts(kind: FileKind) -> None:
    """Each text of the example in turn is empty."""
    validator, example = Validator(configuration.schema(kind)), _example(kind)
    for path in _paths(example):
        emptied = _with(example, path, "")
        if not isinstance(_at(example, path), str):
            continue
        try:
            kind.parse(emptied)
        except (ConfigError, TenantError):
            assert not validator.is_valid(emptied), path
        else:
            validator.validate(emptied)


def test_reasons_of_all_daemons_are_in_the_reference() -> None:
    """mypy holds a reason that is no member of an EventReason."""
    defined = {
        node.name
        for path in vocabulary.python_files(PACKAGES)
        for node in ast.walk(ast.parse((ROOT / path).read_text()))
        if isinstance(node, ast.ClassDef)
        if any(ast.unparse(base).endswith("EventReason") for base in node.bases)
    }
    assert defined == {reasons.__name__ for reasons, _ in events.EVENTS.values()}


@pytest.mark.parametrize(
    "text",
    [
        "registry.counter(name, 'Of something.')",
        "registry.counter(help_='Of something.')",
        "registry.counter(*what)",
        "registry.counter(**what)",
        "registry.counter('vcnode_x', 'Of x.', labels)",
        "add = registry.counter",
    ],
)
def test_a_metric_that_cannot_be_read_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "metrics.py"
    file.write_text(f"{text}\n")
    with pytest.raises(metrics.UnreadableMetricError, match=r"metrics\.py:1"):
        list(metrics.of_module(file))


@pytest.mark.parametrize(
    "text",
    [
        "registry.gauge_function('vcnode_x', 'Of x.', read, ('tenant', 'state'))",
        "registry.gauge_function(labels=('tenant', 'state'), read=read, help_='Of x.', name='vcnode_x')",
        "registry.gauge('vcnode_x', 'Of x.', LABELS)",
    ],
)
def test_metrics_are_found_with_their_labels(text: str, tmp_path: Path) -> None:
    file = tmp_path / "metrics.py"
    file.write_text(f"LABELS = ('tenant', 'state')\n{text}\n")
    (metric,) = metrics.of_module(file)
    assert (metric.type, metric.labels, metric.help) == ("gauge", ("tenant", "state"), "Of x.")


def test_a_metric_that_is_registered_twice_is_refused() -> None:
    twice = [metrics.Metric("vcnode_x", "gauge", (), help_, "vnagent/metrics.py") for help_ in "ab"]
    with pytest.raises(metrics.UnreadableMetricError, match="two places: vcnode_x"):
        metrics.by_programs(twice)


def test_documents_and_code_name_metrics_that_exist() -> None:
    assert metrics.unknown() == []


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("README.md", "`vcnode_a_total{x}`, `vcnode_a_seconds_count`", []),
        ("README.md", "`vcnode_a_totals`", ["vcnode_a_totals"]),
        ("README.md", "`vcnode_process_*`, vcnode_demo/daemon.py, `vcnode_demo.daemon`", []),
        ("a.py", 'line.startswith("vcnode_old_total{")', ["vcnode_old_total"]),
        ("CHANGELOG.md", "  | `vcnode_old_total{x}` | `vcnode_a_total{x}` |\n", []),
        (
            "CHANGELOG.md",
            "| `vcnode_a_total` | `vcnode_new` |\nWatch `vcnode_old`.",
            ["vcnode_new", "vcnode_old"],
        ),
    ],
)
def test_unknown_metrics_are_found(name: str, text: str, expected: list[str]) -> None:
    known = {"vcnode_a_total", "vcnode_a_seconds"}
    assert list(metrics.unknown_in(Path(name), text, known)) == expected


def _example(kind: FileKind) -> Any:
    return yaml.safe_load((EXAMPLES / kind.example).read_text())


def _changed(value: Any) -> Iterator[Any]:
    """The document with one value left out or replaced."""
    for path in _paths(value):
        yield from (_with(value, path, other) for other in _OTHERS)
        yield _without(value, path)


def _broken(value: Any) -> Iterator[Any]:
    """The document with one unknown key, in each mapping of it."""
    yield {**value, "unknown": 1}
    for path in _paths(value):
        inner = _at(value, path)
        if isinstance(inner, dict):
            yield _with(value, path, {**inner, "unknown": 1})


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in steps:
        yield (*path, step)
        yield from _paths(inner, (*path, step))


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    return functools.reduce(lambda inner, step: inner[step], path, value)


def _with(value: Any, path: tuple[Any, ...], replacement: Any) -> Any:
    made = copy.deepcopy(value)
    inner = made
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = replacement
    return made


def _without(value: Any, path: tuple[Any, ...]) -> Any:
    made = copy.deepcopy(value)
    inner = made
    for step in path[:-1]:
        inner = inner[step]
    del inner[path[-1]]
    return made
