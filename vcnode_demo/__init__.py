# SPDX-License-Identifier: Apache-2.0
"""`vcnode demo`: the whole thing on one machine, without a cluster; without root all but two acts."""

import argparse
from typing import Any

from vcnode.terminal import Terminal


def add_to(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser = verbs.add_parser(
        "demo",
        help="see it work: stand-in cluster, real daemons, two tenants",
        description="Start stand-ins for a super cluster and a kubelet, the real daemons and two tenants,"
        " and show what each tenant can do and cannot. Every step is checked; exit code 1 if one is not"
        " as told. Services inside guests and DNS of each network need root, iptables or nft, and network"
        " namespaces; otherwise these acts are left out.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--keep", action="store_true", help="stay up until Ctrl-C and print commands to play with"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, terminal: Terminal) -> int:
    """Play all acts. Exit code 0 if every step was as told."""
    # The stand-ins bring an HTTP server and a certificate authority, which no other verb needs.
    from vcnode_demo.runner import play

    return play(terminal, is_keeping=arguments.keep)
