# SPDX-License-Identifier: Apache-2.0
import dataclasses
import enum
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from daemonkit.config import commented, yaml_values
from daemonkit.config.binding import keys, parse, setting
from tests.reference.kinds import KINDS


class Mode(enum.Enum):
    ON = "on"
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class ListedItem:
    key: str = setting(minimum_length=1, doc="its key")


@dataclass(frozen=True, slots=True)
class Limits:
    seconds: float = setting(2.5, minimum=0.0, maximum=60.0, doc="how long")
    file: Path | None = setting(None, doc="a file")


@dataclass(frozen=True, slots=True)
class Gate:
    directory: Path = setting(doc="where")
    mode: Mode = setting(Mode.WAIT, doc="what it does")


@dataclass(frozen=True, slots=True)
class WithoutDefaults:
    file: Path | None = setting(None, doc="a file")


@dataclass(frozen=True, slots=True)
class Configuration:
    name: str = setting(minimum_length=1, doc="name of the Node")
    port: int = setting(10550, minimum=0, maximum=65535, doc="TCP port")
    items: tuple[ListedItem, ...] = setting((), doc="some items")
    patterns: tuple[str, ...] = setting(("kata*", "no"), doc="patterns")
    limits: Limits = field(default_factory=Limits)
    gate: Gate | None = setting(None, doc="the gate")
    empty: WithoutDefaults | None = setting(None, doc="what has no defaults")


WHOLE = """\
apiVersion: vcnode.io/v1alpha1
kind: Test

# name of the Node
name: node-1

# TCP port; integer, 0 to 65535
#port: 10550

# some items
#   key: its key
#items: []

# patterns
#patterns: ["kata*", "no"]

#limits:
#  # how long; number, 0 to 60
#  seconds: 2.5
#  # a file
#  #file: /PATH

# the gate
gate:
  # where
  directory: /run/pods
  # what it does; on or wait
  #mode: wait

# what has no defaults
#   file: a file
empty: {}
"""


def test_set_keys_and_comments_are_written() -> None:
    values = {"name": "node-1", "gate": {"directory": "/run/pods"}, "empty": {}}
    text = commented.render(Configuration, "Test", values)
    assert text == WHOLE
    bound = parse(text.encode(), Configuration, kind="Test", source="test")
    assert bound == Configuration("node-1", gate=Gate(Path("/run/pods")), empty=WithoutDefaults())


def test_an_empty_optional_mapping_gets_its_defaults() -> None:
    @dataclass(frozen=True, slots=True)
    class Outer:
        limits: Limits | None = setting(None, doc="limits")

    text = commented.render(Outer, "Test", {"limits": {}})
    assert "limits:\n  # how long; number, 0 to 60\n  seconds: 2.5\n" in text
    assert parse(text.encode(), Outer, kind="Test", source="test") == Outer(Limits())


def test_a_required_key_must_be_given() -> None:
    with pytest.raises(KeyError, match="name"):
        commented.render(Configuration, "Test", {})


@pytest.mark.parametrize("kind", [each for each in KINDS if each.parser is None], ids=lambda each: each.name)
def test_each_comment_is_a_key_of_its_place(kind: Any) -> None:
    """Without their `#`, the lines of keys are a document that has keys of the class and no others."""
    text = commented.render(kind.cls, kind.name, _sample(kind.cls))
    document = yaml_values.decode("\n".join(map(_uncommented, text.splitlines())))
    assert isinstance(document, dict)
    assert list(document)[2:] == list(keys(kind.cls))


# Text has one or three blanks behind its `#`.
_COMMENTED = re.compile("( *)#(?=(?:  )*[A-Za-z#])")


def _uncommented(line: str) -> str:
    while (found := _COMMENTED.match(line)) is not None:
        line = found[1] + line[found.end() :]
    return line


def _sample(cls: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, key in keys(cls).items():
        if key.default is dataclasses.MISSING:
            inner, mark = commented.item_type(key.hint)
            if mark:
                found[name] = []
            else:
                found[name] = _sample(inner) if dataclasses.is_dataclass(inner) else "sample"
    return found


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("/run/pods", "/run/pods"),
        ("registry.k8s.io/coredns:v1", "registry.k8s.io/coredns:v1"),
        ("10.0.0.1", '"10.0.0.1"'),
        ("kata*", '"kata*"'),
        ("no", '"no"'),
        ("a b", '"a b"'),
        ("", '""'),
        ("a: b", '"a: b"'),
        (["a", "#b"], '[a, "#b"]'),
        ({"a": 1}, "{a: 1}"),
        (True, "true"),
        (None, "null"),
        (600.0, "600"),
    ],
)
def test_values_are_read_as_they_were(value: Any, text: str) -> None:
    assert commented.flow(value) == text
    assert yaml_values.decode(f"[{text}]") == [value]
