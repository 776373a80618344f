# SPDX-License-Identifier: Apache-2.0
"""`vcnode VERB ...`, also `python -m vcnode`. Exit codes: 0 done, 1 the answer is no, 2 wrong usage,
3 no answer."""

import argparse
import sys
from collections.abc import Sequence
from types import ModuleType

from vcnode import (
    check,
    demo,
    doctor,
    explain,
    explain_dns,
    explain_object,
    guests,
    init,
    status,
    tenant,
    tenants,
)
from vcnode.output import output_of
from vcnode.program import run_verb
from vcnode.terminal import ToolError

VERBS = (status, guests, tenants, explain, tenant, init, check, doctor, demo)
# Second words of `explain`: argparse has no verbs of two words beside one of the first word alone.
EXPLAINERS = {each.VERB: each for each in (explain_dns, explain_object)}


def parser(verbs: Sequence[ModuleType] = VERBS) -> argparse.ArgumentParser:
    """The command line; each verb adds its part."""
    top = argparse.ArgumentParser(
        prog="vcnode", description="Operator's tool of the vcnode node data plane.", allow_abbrev=False
    )
    added = top.add_subparsers(metavar="VERB", required=True)
    for verb in verbs:
        verb.add_to(added)
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
    else:
        arguments = parser().parse_args(words)
    return run_verb(lambda terminal: arguments.run(arguments, terminal), output_of(arguments))


if __name__ == "__main__":
    sys.exit(main())
