# SPDX-License-Identifier: Apache-2.0
"""What `make check` knows of names: of code, metrics and tests, and their words."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests import links, predicates
from tests.packages import PACKAGES, ROOT
from tests.reference import metrics

MAX_MEANINGS = 2
MAX_TEST_NAME = 60

# https://prometheus.io/docs/practices/naming/: a base unit, `total` for what only rises, or what is counted,
# in the plural: words in -is, -ss and -us are none.
_UNITS = ("seconds", "bytes", "info", "ratio", "connected")
_COUNTED = re.compile("[a-z]{2,}[a-hj-rtv-z]s")
_NOT_BASE_UNIT = re.compile(
    "(?:nano|micro|milli|kilo|mega|giga|tera|kibi|mebi|gibi|tebi)[a-z]*"
    "|[mun]?s|[mun]?secs?|[kmgt]i?bs?|mins?|minutes?|hours?|days?|weeks?|months?|years?|bits?"
    "|percent(?:age)?s?"
)
_SHARED_METRICS = ("vcnode_build_info", "vcnode_process_ready", "vcnode_reloads_total", "vcnode_tasks")

# Words that this code once used with a meaning of its own, where the field has a word.
_LEFT_WORDS = frozenset(
    re.findall(
        r"\w+",
        """
        brake brakes complaint complaints convoy convoys deaf door doors doubted fate fates gatehouse
        gatehouses glance glances handout handouts heard keeper keepers knowledge luck opener openers
        overtaken patience picture pictures poster posters recall restorer restorers roster rosters rulings
        said shaken spoiled stranger strangers told unasked unheard unrest unseal unserved untouchable
        """,
    )
)
# A line with this word keeps its words, for the reason that follows.
_KEPT = "# saved as:"
# The files that list such words.
_LISTS = (Path("tests/vocabulary.py"), Path("tests/unit/test_vocabulary.py"))

_ENUM = re.compile(r"(?:Enum|Flag)$")
# Others are sentences.
_ENUM_VALUE = re.compile(r"[\w./-]+")

_ALIAS_NAME = re.compile(r"_*[A-Z][A-Za-z0-9]*[a-z][A-Za-z0-9]*")


@dataclass(frozen=True, slots=True)
class ModuleNames:
    """What the checks want of one module. Lines stand beside names, in pairs."""

    classes: Sequence[tuple[str, int]]
    aliases: Sequence[tuple[str, str]]
    """Names that stand for types at the top of the module, and the types."""
    functions: Sequence[tuple[str, int]]
    fields: Sequence[str]
    others: Sequence[str]
    """Constants, attributes of `self`, members of enums, and their values."""
    tree: ast.Module


def parse(text: str) -> ModuleNames:
    """Read a module once for all checks."""
    tree = ast.parse(text)
    classes, functions = [], []
    nodes = list(ast.walk(tree))
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            classes.append(node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            functions.append((node.name, node.lineno))
    return ModuleNames(
        classes=[(node.name, node.lineno) for node in classes],
        aliases=list(_aliases(tree)),
        functions=functions,
        fields=[name for node in classes for name in _fields(node)],
        others=[
            *_constants(tree),
            *_attributes(nodes),
            *(name for node in classes for name in _members(node)),
        ],
        tree=tree,
    )


def python_files(folders: Sequence[str] = (*PACKAGES, "tests", "packaging")) -> list[Path]:
    """Our modules, relative to the root."""
    return sorted(path.relative_to(ROOT) for each in folders for path in (ROOT / each).rglob("*.py"))


@cache
def sources() -> Mapping[Path, ModuleNames]:
    """All our modules, each parsed once."""
    return {path: parse((ROOT / path).read_text()) for path in python_files()}


@cache
def product() -> Mapping[Path, ModuleNames]:
    return {path: source for path, source in sources().items() if path.parts[0] in PACKAGES}


def overused_names(modules: Mapping[Path, ModuleNames]) -> list[str]:
    """`Name: file, file, file` of each class or alias that stands for more than `MAX_MEANINGS` things.

    A leading `_` makes no other name, and aliases of the same type are one thing.
    """
    found: defaultdict[str, dict[str, Path]] = defaultdict(dict)
    for path, source in modules.items():
        for name, line in source.classes:
            found[name.strip("_")][f"{path}:{line}"] = path
        for name, meaning in source.aliases:
            found[name.strip("_")].setdefault(meaning, path)
    return [
        f"{name}: {', '.join(map(str, things.values()))}"
        for name, things in sorted(found.items())
        if len(things) > MAX_MEANINGS
    ]


def _aliases(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Type variables do not count."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            target, value = node.target, node.value
        else:
            continue
        if isinstance(target, ast.Name) and _ALIAS_NAME.fullmatch(target.id):
            meaning = ast.unparse(value)
            if not meaning.startswith(("TypeVar(", "ParamSpec(")):
                yield target.id, meaning


def _fields(node: ast.ClassDef) -> Iterator[str]:
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            yield each.target.id


def _constants(tree: ast.Module) -> Iterator[str]:
    """The names that a module binds, and that are neither functions nor classes."""
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                yield from (each.id for each in ast.walk(target) if isinstance(each, ast.Name))


def _attributes(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        match node:
            case ast.Attribute(ast.Name("self"), name, ast.Store()):
                yield name


def _members(node: ast.ClassDef) -> Iterator[str]:
    """Of an enum, with the texts that are names: reasons of Events and of conditions, values of labels."""
    if not any(_ENUM.search(ast.unparse(base)) for base in node.bases):
        return
    for each in node.body:
        if isinstance(each, ast.Assign):
            yield from (target.id for target in each.targets if isinstance(target, ast.Name))
            for value in ast.walk(each.value):
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    yield from [value.value] * bool(_ENUM_VALUE.fullmatch(value.value))


def changing_predicates(modules: Mapping[Path, ModuleNames]) -> list[str]:
    """`file:line: name` of each `is_`, `has_` or `can_` that changes what its caller can see.

    Predicates of tests may send a daemon a request, which changes their client.
    """
    ours = product()
    mutating = predicates.mutating_methods(source.tree for source in ours.values())
    return [
        f"{path}:{line}: {name}"
        for path, source in modules.items()
        for name, line in predicates.changing(source.tree, mutating if path in ours else frozenset())
    ]


def long_test_names(modules: Mapping[Path, ModuleNames]) -> list[str]:
    return [
        f"{path}:{line}: {name}"
        for path, source in modules.items()
        for name, line in source.functions
        if name.startswith("test_") and len(name) > MAX_TEST_NAME
    ]


def texts() -> Iterator[tuple[Path, str]]:
    """What may have no word of the old dialect: code with its comments, and documents but for records."""
    for path in links.files():
        if path not in _LISTS and not links.is_record(path):
            yield path, (ROOT / path).read_text(encoding="utf-8")


def left_words(read: Iterable[tuple[Path, str]]) -> list[str]:
    """`file:line: word` of each word of the old dialect."""
    return [
        f"{path}:{number}: {word}"
        for path, text in read
        if _may_have_left_words(text.lower())
        for number, line in enumerate(text.split("\n"), 1)
        if _KEPT not in line
        for word in _parts(line)
        if word in _LEFT_WORDS
    ]


def _may_have_left_words(text: str) -> bool:
    """A quick look: other words may contain them."""
    return any(word in text for word in _LEFT_WORDS)


def coined_words(modules: Mapping[Path, ModuleNames], metric_names: Iterable[str] = ()) -> list[str]:
    """`word: name` of each word in a name that is neither standard nor in the glossary."""
    known = _standard_words() | glossary_words()
    return [
        f"{word}: {name}" for word, name in sorted(_named(modules, metric_names).items()) if word not in known
    ]


def unused_standard_words(modules: Mapping[Path, ModuleNames], metric_names: Iterable[str] = ()) -> list[str]:
    """Those that no name has any more."""
    return sorted(_standard_words() - _named(modules, metric_names).keys())


@cache
def _standard_words() -> frozenset[str]:
    return _words((ROOT / "tests" / "standard_words.txt").read_text())


def _named(modules: Mapping[Path, ModuleNames], metric_names: Iterable[str]) -> dict[str, str]:
    """The words of names of modules, of what they define, and of metrics, each with one that has it."""
    names = list(metric_names)
    for path, source in modules.items():
        names += [path.stem, *source.fields, *source.others]
        names += [name for name, _ in (*source.classes, *source.functions)]
    return {
        word: name
        for name in names
        if not name.endswith("__")
        for word in _parts(name)
        if len(word) > 1  # T, IPV4
    }


@cache
def glossary_words() -> frozenset[str]:
    """The words that docs/glossary.md explains, with their plurals."""
    rows = re.findall(r"^\| ([^|]+) \|", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    words = _words(" ".join(rows))
    return words | {f"{word}s" for word in words}


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z]+", text.lower()))


def _parts(name: str) -> list[str]:
    """`TlsConnection` and `tls_connection` have the words tls and connection."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def metric_faults(registered: Iterable[metrics.Metric]) -> list[str]:
    return [f"{each.place}: {each.name}: {fault}" for each in registered if (fault := _metric_fault(each))]


def _metric_fault(metric: metrics.Metric) -> str:
    """What is wrong with `vcnode_<daemon>_<name>_<unit>`; empty for those that all daemons share."""
    if (metric.type == "counter") != metric.name.endswith("_total"):
        return "a counter, and only a counter, ends with _total"
    if metric.name in _SHARED_METRICS:
        return ""
    package = Path(metric.place).parts[0].replace("_", "")
    start = f"vcnode_{'process' if package == 'daemonkit' else package}_"
    if not metric.name.startswith(start):
        return f"{metric.place} registers what begins with {start}"
    words = metric.name.removeprefix(start).removesuffix("_total").split("_")
    unit = words.pop() if words[-1] in _UNITS else ""
    if not words or not all(re.fullmatch("[a-z][a-z0-9]*", word) for word in words):
        return "a word of lower case between each two underscores, and one before the unit"
    if any(word in (*_UNITS, "total") or _NOT_BASE_UNIT.fullmatch(word) for word in words):
        return "one unit, a base unit, and it is last but for _total"
    is_counted = unit or metric.type == "counter" or _COUNTED.fullmatch(words[-1])
    return "" if is_counted else "neither a base unit nor the plural of what is counted"
