# SPDX-License-Identifier: Apache-2.0
"""`vcnode VERB ...`, also `python -m vcnode`. Exit codes: 0 done, 1 a negative result, 2 wrong
usage, 3 the question failed."""

import argparse
import sys
from collections.abc import Sequence

from daemonkit.version import VERSION
from vcnode import demo
from vcnode.output import output_of
from vcnode.program import run_verb
from vcnode.terminal import ToolError
from vcnode.verbs import load

# Modules, each with the verb of its name.
VERBS = (
    "status",
    "top",
    "guests",
    "tenants",
    "explain",
    "tenant",
    "log_level",
    "init",
    "check",
    "doctor",
    "bugreport",
    "demo",
)
# Modules by the second word of `explain`: argparse has no verbs of two words beside one of the first alone.
EXPLAINERS = {"dns": "explain_dns", "object": "explain_object"}


def parser(verbs: Sequence[str] = VERBS) -> argparse.ArgumentParser:
    """The command line; the modules `verbs` add a part each."""
    top = argparse.ArgumentParser(
        prog="vcnode", description="Operator's tool of the vcnode node data plane.", allow_abbrev=False
    )
    top.add_argument("--version", action="version", version=f"%(prog)s {VERSION}")
    added = top.add_subparsers(metavar="VERB", required=True)
    for verb in verbs:
        load(verb).add_to(added)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit code. Raises SystemExit for wrong usage and --help."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == [demo.VERB]:
        try:
            demo.execute(words[1:])
        except ToolError as error:
            parser().error(str(error))
    if words[:1] == ["explain"] and len(words) > 1 and words[1] in EXPLAINERS:
        arguments = parser((EXPLAINERS[words[1]],)).parse_args(words[1:])
    elif words[:1] != [] and words[0] in VERBS:
        # The others would take as long to load.
        arguments = parser(words[:1]).parse_args(words)
    else:
        arguments = parser().parse_args(words)
    return run_verb(lambda terminal: arguments.run(arguments, terminal), output_of(arguments))


if __name__ == "__main__":
    sys.exit(main())
