# SPDX-License-Identifier: Apache-2.0
"""Starts the guest's agent: wiring and nothing else."""

import os
import signal
import sys
from collections.abc import Sequence

from daemonkit import logs
from guest_agent import connection, state_file
from guest_agent.core import arguments
from guest_agent.core.arguments import Arguments
from guest_agent.core.packet_filter import Broken
from guest_agent.kernel.kernel_packet_filter import KernelFilter
from guest_agent.kernel.netfilter_socket import Netfilter, NetfilterError
from guest_agent.reconciler import Keeper
from guest_agent.request_handler import Answers
from guest_agent.session import Link

_log = logs.get("guest_agent")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the agent until it is told to end. Its rules stay."""
    given = arguments.parse(sys.argv[1:] if argv is None else argv)
    logs.setup(level=given.log_level)
    for number in (signal.SIGTERM, signal.SIGINT):
        # At once: there is nothing to finish that the next start does not find out.
        signal.signal(number, lambda *_: os._exit(0))
    try:
        given.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        connection.wait_for_random_pool()
        _link(given).run()
    except OSError as error:
        _log.error("cannot start", error=error)
    except Broken as error:
        _log.error("cannot start", reason=str(error))
    return 1


def _link(given: Arguments) -> Link:
    try:
        netfilter = Netfilter()
    except NetfilterError as error:
        _log.warning("no conntrack and no nft", reason=str(error))
        netfilter = None
    packet_filter = KernelFilter(netfilter, is_sole=True)
    state_path = given.state / "state"
    keeper = Keeper(packet_filter, state_file.read(state_path))
    flush = netfilter.delete_flows if netfilter is not None else None
    answers = Answers(keeper, flush, state_path, given.resolv_conf)
    _log.info(
        "started", programs=packet_filter.describe, digest=keeper.digest[:16], drifted=keeper.is_drifted
    )
    return Link(given.node.target, given.credentials, keeper, packet_filter, answers)


if __name__ == "__main__":
    sys.exit(main())
