# SPDX-License-Identifier: Apache-2.0
"""`vcnode demo`: all daemons on one machine, without a cluster. Two of its five scenarios need root."""

import argparse
import sys

from vcnode.program import run_verb
from vcnode_demo import runner


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="vcnode demo",
        description="Start a fake super cluster and kubelet, the real daemons and tenants,"
        " and show what each tenant can do and cannot. Every step is checked; exit code 1 if a check"
        " fails. Services inside guests and DNS of each network need root, iptables or nft, and network"
        " namespaces; otherwise these scenarios are skipped. It runs from a clone only.",
        allow_abbrev=False,
    )
    parser.add_argument("--keep", action="store_true", help="stay up until Ctrl-C and print commands to try")
    return parser


def main() -> int:
    """Return exit code 0 if every check passed. Raises SystemExit for wrong usage and --help."""
    arguments = parser().parse_args()
    return run_verb(lambda terminal: runner.run(terminal, is_keeping=arguments.keep))


if __name__ == "__main__":
    sys.exit(main())
