# SPDX-License-Identifier: Apache-2.0
"""The metrics that the code registers, found by reading it: nothing is started."""

import ast
import functools
import inspect
import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from daemonkit.metrics import Registry
from daemonkit.status import exposition
from tests import links
from tests.packages import PACKAGES, ROOT

_TYPES = {
    "counter": "counter",
    "counter_function": "counter",
    "gauge": "gauge",
    "gauge_function": "gauge",
    "histogram": "histogram",
}
_PROGRAMS = {
    "vnagent": "vn-agent",
    "kata_bridge": "kata-bridge",
    "kubeproxy_ext": "kubeproxy-ext",
    "dnsconfig": "dnsconfig",
    "dns_webhook": "dnsconfig-webhook",
    "syncer": "vc-syncer",
    "tenant_operator": "vc-operator",
}
# A shared module registers its metric in a function of this name, which each program calls.
_SHARED = "add_metric"
# Or it is of the shell of all programs.
_SHELL = "daemonkit/run/daemon_shell.py"
_NAMED = re.compile(r"(?<![\w./-])vcnode_[a-z0-9_]*[a-z0-9](?![\w/])")
# What a histogram's series add to its name.
_SERIES = re.compile(r"_(?:bucket|count|sum)$")
# Unit tests register metrics of their own.
_OWN_METRICS = Path("tests/unit")
# A row of a table of renames; the last cell has the new names.
_RENAME = re.compile(r"^ *\|.*\|(?P<new>[^|\n]*)\|$", re.MULTILINE)


@dataclass(frozen=True, slots=True, order=True)
class Metric:
    name: str
    type: str
    labels: tuple[str, ...]
    help: str
    place: str


class UnreadableMetricError(Exception):
    """A metric is registered twice, by no program, or in a form that this module cannot read."""


@functools.cache
def registered() -> tuple[Metric, ...]:
    """Of all packages, by name. Raises UnreadableMetricError."""
    files = (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")))
    return tuple(sorted(metric for path in files for metric in of_module(path)))


def of_module(path: Path) -> Iterator[Metric]:
    """Those of one file. Raises UnreadableMetricError."""
    place = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name
    source = path.read_text()
    if not any(method in source for method in _TYPES):
        return
    tree = ast.parse(source)
    constants = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    methods = {
        node: node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr in _TYPES
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if method := methods.pop(node.func, None):
            arguments = {
                parameter: constants.get(each.id, each) if isinstance(each, ast.Name) else each
                for parameter, each in _arguments(node, method, place).items()
            }
            name, help_ = (_literal(arguments[each], place) for each in ("name", "help_"))
            labels = _labels(arguments["labels"], place) if "labels" in arguments else ()
            yield Metric(name, _TYPES[method], labels, help_, place)
    for other, method in methods.items():
        raise UnreadableMetricError(f"{place}:{other.lineno}: {method} is not called here")


def _arguments(call: ast.Call, method: str, place: str) -> dict[str, ast.expr]:
    """Those of a call of a Registry, by the names of its parameters."""
    keywords = {str(each.arg): each.value for each in call.keywords}
    try:
        bound = inspect.signature(getattr(Registry, method)).bind(None, *call.args, **keywords)
    except TypeError as error:
        raise UnreadableMetricError(f"{place}:{call.lineno}: {method}: {error}") from None
    return {name: value for name, value in bound.arguments.items() if name != "self"}


def unknown() -> list[str]:
    """`file: name` of each metric that a document or code names and no daemon has."""
    known = {metric.name for metric in registered()}
    return [
        f"{path}: {name}"
        for path in links.files()
        if not path.is_relative_to(_OWN_METRICS)
        for name in unknown_in(path, (ROOT / path).read_text(encoding="utf-8"), known)
    ]


def unknown_in(path: Path, text: str, known: Collection[str]) -> Iterator[str]:
    """Those of one file. CHANGELOG.md names old ones in its tables of renames."""
    if path.name == "CHANGELOG.md":
        text = _RENAME.sub(lambda row: row["new"], text)
    for found in _NAMED.finditer(text):
        name = found[0]
        is_package = (ROOT / name).is_dir()
        if not is_package and name not in known and _SERIES.sub("", name) not in known:
            yield name


def _name_of(function: ast.expr) -> str:
    """The last name of what is called."""
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def by_programs(metrics: Collection[Metric]) -> dict[tuple[str, ...], list[Metric]]:
    """The metrics under the programs that have them. Raises UnreadableMetricError."""
    repeated = [name for name, count in Counter(metric.name for metric in metrics).items() if count > 1]
    if repeated:
        raise UnreadableMetricError(f"registered at two places: {', '.join(repeated)}")
    result: dict[tuple[str, ...], list[Metric]] = {}
    for metric in metrics:
        result.setdefault(_programs(metric), []).append(metric)
    return result


def of_the_library() -> list[Metric]:
    """Those of the process and the platform, which prometheus-client reads in every program."""
    return sorted(
        Metric(
            family.name + ("_total" if family.type == "counter" else ""),
            family.type,
            tuple(dict.fromkeys(label for sample in family.samples for label in sample.labels)),
            family.documentation,
            "prometheus_client",
        )
        for family in exposition.platform().collect()
    )


def table(metrics: list[Metric]) -> str:
    rows = (
        f"| `{metric.name}` | {metric.type} | {', '.join(f'`{label}`' for label in metric.labels)} |"
        f" {metric.help} |"
        for metric in metrics
    )
    return "| metric | type | labels | what it counts |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"


def _programs(metric: Metric) -> tuple[str, ...]:
    """Those whose package registers it, or calls the shared module that does."""
    package = Path(metric.place).parts[0]
    if package in _PROGRAMS:
        return (_PROGRAMS[package],)
    if metric.place == _SHELL:
        return tuple(sorted(_PROGRAMS.values()))
    function = ".".join((*Path(metric.place).with_suffix("").parts, _SHARED))
    found = tuple(sorted(name for each, name in _PROGRAMS.items() if function in _called(each)))
    if not found:
        raise UnreadableMetricError(f"{metric.place}: {metric.name} is registered by no program")
    return found


@cache
def _called(package: str) -> frozenset[str]:
    """The whole names of the shared functions that a package calls."""
    found: set[str] = set()
    for path in (ROOT / package).rglob("*.py"):
        tree = ast.parse(path.read_text())
        imported = {
            alias.asname or alias.name: f"{node.module}.{alias.name}"
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and _name_of(node.func) == _SHARED:
                first, *rest = ast.unparse(node.func).split(".")
                found.add(".".join((imported.get(first, first), *rest)))
    return frozenset(found)


def _labels(node: ast.expr, place: str) -> tuple[str, ...]:
    if not isinstance(node, ast.Tuple):
        raise UnreadableMetricError(f"{place}:{node.lineno}: labels are not literals")
    return tuple(_literal(each, place) for each in node.elts)


def _literal(node: ast.expr, place: str) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    raise UnreadableMetricError(f"{place}:{node.lineno}: not a literal")
