# SPDX-License-Identifier: Apache-2.0
"""The verbs of this tool, as the story's operator uses them."""

import argparse
import datetime as dt
import io
from types import ModuleType

from vcnode.terminal import Terminal
from vcnode_demo.narrator import Story


def verb(story: Story, module: ModuleType, *argv: str) -> None:
    """Use a verb and show what it prints, without where it asked. Raises ToolError."""
    story.asked("operator", f"vcnode {argv[0]}")
    story.came(said(module, *argv)[1])


def said(module: ModuleType, *argv: str) -> tuple[int, str]:
    """Run a verb of this tool; exit code and what it prints. Raises ToolError."""
    top = argparse.ArgumentParser()
    module.add_to(top.add_subparsers())
    arguments = top.parse_args(argv)
    out = io.StringIO()
    code: int = arguments.run(arguments, Terminal(out, out, dt.datetime.now(dt.UTC)))
    return code, out.getvalue()
