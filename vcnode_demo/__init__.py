# SPDX-License-Identifier: Apache-2.0
"""`vcnode demo`: all daemons on one machine, without a cluster. Two of its four scenarios need root."""

import argparse
from typing import Any

from vcnode.terminal import Terminal


def add_to(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser = verbs.add_parser(
        "demo",
        help="see it work: fake cluster, real daemons, two tenants",
        description="Start a fake super cluster and kubelet, the real daemons and two tenants,"
        " and show what each tenant can do and cannot. Every step is checked; exit code 1 if a check"
        " fails. Services inside guests and DNS of each network need root, iptables or nft, and network"
        " namespaces; otherwise these scenarios are skipped.",
        allow_abbrev=False,
    )
    parser.add_argument("--keep", action="store_true", help="stay up until Ctrl-C and print commands to try")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, terminal: Terminal) -> int:
    """Exit code 0 if every check passed."""
    # The fakes bring an HTTP server and a certificate authority, which no other verb needs.
    from vcnode_demo import runner

    return runner.run(terminal, is_keeping=arguments.keep)
