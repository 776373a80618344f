# SPDX-License-Identifier: Apache-2.0
"""docs/reference matches the code, and the schemas accept the daemons' configurations."""

import ast
import copy
import dataclasses
import enum
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from daemonkit.config import commented
from daemonkit.config.binding import ConfigError, ConfigKey, keys
from tenancy.document import TenantError
from tests import vocabulary
from tests.examples import DIRECTORY as EXAMPLES
from tests.packages import PACKAGES, ROOT
from tests.reference import configuration, events, metrics, pages
from tests.reference.kinds import KINDS, FileKind

Validator = jsonschema.Draft202012Validator

# Values of each type that YAML has.
_OTHERS: tuple[Any, ...] = (None, "text", [], {})
_SCALARS: tuple[Any, ...] = (True, -7, 7, 7.5)


# What to write for keys without a default, by name, where any text will not do.
_VALUES: dict[str, Any] = {
    **{key: ["192.0.2.0/28"] for key in ("dnsCidrs", "clientCidrs", "storeCidrs")},
    "endpoints": ["https://192.0.2.7:2379"],
    "gateways": ["10.0.0.0/24"],
    "group": "root",
    "ipv4Address": "10.0.0.2",
    "ipv6Address": "fd00::2",
    "nodeIPs": ["10.0.0.11"],
    "policyFile": "/dev/null",
    "resources": ["ingress"],
    "serviceCIDRs": ["10.96.0.0/12"],
    "users": ["root"],
}
# Keys that exclude others of their mapping, and mappings that have them.
_EXCLUSIVE = (
    *("metrics.address", "pods.file", "status.address", "tenants.directory", "tenants.kubeconfigFile"),
    ".superApiserver",
)
# A section that another one replaces.
_INSTEAD: tuple[tuple[str, str, Any], ...] = (("kubelet", "superApiserver", {"kubeconfigFile": "/x"}),)
_ALTERNATIVES: tuple[tuple[str, Any], ...] = (
    ("tenants", {"kubeconfigFile": "/x"}),
    ("tenants", {"directory": "/x"}),
    ("pods", {"source": "file", "file": "/x"}),
    ("status", {"address": "127.0.0.1", "port": 0}),
    (
        "metrics",
        {
            "address": "192.0.2.1",
            "port": 9100,
            "certificateFile": "/c",
            "keyFile": "/k",
            "clientCAFile": "/a",
            "clientNames": ["prometheus"],
        },
    ),
)


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
def test_documents_have_every_key(kind: FileKind) -> None:
    """The daemon accepts them, so that what it refuses below is the change."""
    documents = list(_documents(kind))
    for document in documents:
        kind.parse(document)
        Validator(configuration.schema(kind)).validate(document)
    found = {_dotted(path) for document in documents for path in _paths(document)}
    assert [path for path, _ in configuration.leaves(kind.cls) if path not in found] == []


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_schema_accepts_what_the_daemon_accepts(kind: FileKind) -> None:
    """Each value in turn is left out, or is text, null or empty.

    Only the daemon checks relations between keys and the form of texts, so it may refuse more.
    """
    validator = Validator(configuration.schema(kind))
    for changed in _each(kind, _changed):
        if _is_accepted(kind, changed):
            validator.validate(changed)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_schema_and_daemon_take_the_same_types(kind: FileKind) -> None:
    """Each value in turn is a number or a truth value."""
    validator = Validator(configuration.schema(kind))
    for changed in _each(kind, _scalars):
        assert validator.is_valid(changed) == _is_accepted(kind, changed), changed


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_schema_and_daemon_refuse_unknown_keys(kind: FileKind) -> None:
    validator = Validator(configuration.schema(kind))
    for broken in _each(kind, _broken):
        assert not validator.is_valid(broken), broken
        with pytest.raises((ConfigError, TenantError)):
            kind.parse(broken)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_schema_refuses_the_same_empty_texts(kind: FileKind) -> None:
    """Each text in turn is empty."""
    validator = Validator(configuration.schema(kind))
    for emptied in _each(kind, _emptied):
        assert validator.is_valid(emptied) == _is_accepted(kind, emptied), emptied


def test_reasons_of_all_daemons_are_in_the_reference() -> None:
    """mypy holds a reason that is no member of an EventReason."""
    defined = {
        node.name
        for path in vocabulary.python_files(PACKAGES)
        for node in ast.walk(ast.parse((ROOT / path).read_text()))
        if isinstance(node, ast.ClassDef)
        if any(ast.unparse(base).endswith("EventReason") for base in node.bases)
    }
    assert defined == {reasons.__name__ for _, reasons, _ in events.EVENTS}


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


def _documents(kind: FileKind) -> Iterator[Any]:
    """Together they have every key: the example, filled, and with each alternative in turn."""
    filled = _filled(kind.cls, _example(kind))
    yield filled
    for name, other in _ALTERNATIVES:
        if name in keys(kind.cls) and other.keys() <= keys(_type_of(kind.cls, name)).keys():
            yield {**filled, name: other}
    for replaced, name, other in _INSTEAD:
        if name in keys(kind.cls):
            yield {key: value for key, value in filled.items() if key != replaced} | {name: other}


def _type_of(cls: Any, name: str) -> Any:
    return commented.item_type(keys(cls)[name].hint)[0]


def _filled(cls: Any, given: Any, parent: str = "") -> Any:
    """`given` with the keys of `cls` that it lacks."""
    filled = dict(given)
    for name, key in keys(cls).items():
        inner, mark = commented.item_type(key.hint)
        if f"{parent}.{name}" in _EXCLUSIVE:
            continue
        if dataclasses.is_dataclass(inner) and not mark:
            filled[name] = _filled(inner, given.get(name, {}), name)
        elif name in _VALUES:
            filled[name] = _VALUES[name]
        elif name not in given:
            filled[name] = _value(key)
    return filled


def _value(key: ConfigKey) -> Any:
    """The default, or another value where that is nothing."""
    if key.default not in (dataclasses.MISSING, None, ()):
        return commented.plain(key.default)
    inner, mark = commented.item_type(key.hint)
    if dataclasses.is_dataclass(inner):
        one = _filled(inner, {})
    elif isinstance(inner, type) and issubclass(inner, enum.Enum):
        one = next(iter(inner)).value
    elif key.setting.choices:
        one = key.setting.choices[0]
    else:
        one = {int: max(1, int(key.setting.minimum or 1)), float: 1.0, bool: True}.get(inner, "x")
    return [one] if mark == "[]" else {"x": one} if mark else one


def _dotted(path: tuple[Any, ...]) -> str:
    """As `configuration.leaves` names it, but for the mappings of any keys."""
    return ".".join(map(str, path)).replace(".0", "[]")


def _each(kind: FileKind, variants: Callable[[Any], Iterator[Any]]) -> Iterator[Any]:
    for document in _documents(kind):
        yield from variants(document)


def _is_accepted(kind: FileKind, document: Any) -> bool:
    try:
        kind.parse(document)
    except (ConfigError, TenantError):
        return False
    return True


def _scalars(value: Any) -> Iterator[Any]:
    """The document with one value replaced by a number or a truth value."""
    for path in _paths(value):
        yield from (_with(value, path, other) for other in _SCALARS)
        if isinstance(_at(value, path), int | float):
            yield from (_with(value, path, other) for other in (10**18, 10**18 - 1))


def _emptied(value: Any) -> Iterator[Any]:
    """The document with one text empty."""
    for path in _paths(value):
        if isinstance(_at(value, path), str):
            yield _with(value, path, "")


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
