# SPDX-License-Identifier: Apache-2.0
"""`-o wide|json|yaml` of each verb: lines for people, or one document for programs in Kubernetes' style."""

import argparse
import enum
import json
from collections.abc import Mapping
from typing import Any

from tenancy import keys

_HEADER = ("apiVersion", "kind")


class Output(enum.Enum):
    """What a verb prints. `WIDE` is text with whole columns."""

    TEXT = "text"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add `-o`; `output_of` reads it."""
    parser.add_argument(
        "-o",
        "--output",
        choices=[each.value for each in (Output.WIDE, Output.JSON, Output.YAML)],
        help="wide: text with every column in full; json, yaml: a document with everything that the daemons"
        " report",
    )


def output_of(arguments: argparse.Namespace) -> Output:
    """The value of `-o`; TEXT without it, and for verbs that lack it."""
    return Output(getattr(arguments, "output", None) or Output.TEXT)


def document(kind: str, value: Mapping[str, Any]) -> dict[str, Any]:
    """`value` with `apiVersion` and `kind` before it; a list has its elements in `items`.

    Raises ValueError if `value` has one of these keys: a daemon's page goes below a key of its own.
    """
    if taken := [key for key in _HEADER if key in value]:
        raise ValueError(f"{kind} has {taken[0]} already")
    return {"apiVersion": keys.API_VERSION, "kind": kind, **value}


def write(value: object, output: Output) -> str:
    """The text of a document, JSON or YAML, without characters that a terminal acts upon.

    Raises RecursionError for a document that is nested too deeply.
    """
    if output is Output.YAML:
        import yaml  # not loaded for lines: it takes longer than all of the rest

        text: str = yaml.safe_dump(value, sort_keys=False, allow_unicode=False, width=1 << 20)
        return text
    return f"{json.dumps(value, indent=2)}\n"
