# SPDX-License-Identifier: Apache-2.0
"""Calls verbs of the `vcnode` tool, as an operator does."""

import argparse
import datetime as dt
import io
from types import ModuleType

from vcnode.output import output_of
from vcnode.terminal import Terminal
from vcnode_demo.narrator import Narrator


def show(narrator: Narrator, module: ModuleType, *argv: str) -> None:
    """Run a verb and print its output. Raises ToolError."""
    narrator.request("operator", f"vcnode {argv[0]}")
    narrator.response(run(module, *argv)[1])


def run(module: ModuleType, *argv: str) -> tuple[int, str]:
    """Run a verb; return its exit code and output. Raises ToolError."""
    top = argparse.ArgumentParser()
    module.add_to(top.add_subparsers())
    arguments = top.parse_args(argv)
    out = io.StringIO()
    terminal = Terminal(out, out, dt.datetime.now(dt.UTC), output_of(arguments))
    code: int = arguments.run(arguments, terminal)
    return code, out.getvalue()
