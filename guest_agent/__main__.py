# SPDX-License-Identifier: Apache-2.0
"""Starts the guest agent: wiring and nothing else."""

import os
import signal
import sys
from collections.abc import Sequence

from daemonkit import logs
from guest_agent import arguments, connection, state_file
from guest_agent.arguments import Arguments
from guest_agent.core.packet_filter import FilterUnavailableError
from guest_agent.kernel.kernel_packet_filter import KernelPacketFilter
from guest_agent.kernel.netfilter_socket import NetfilterError, NetfilterSocket
from guest_agent.reconciler import RulesetReconciler
from guest_agent.request_handler import RequestHandler
from guest_agent.session import AgentSession

EXIT_STOPPED, EXIT_FAILED = 0, 1

_log = logs.get("guest_agent")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the agent until a signal ends it. The rules stay."""
    parsed = arguments.parse(sys.argv[1:] if argv is None else argv)
    logs.setup(level=parsed.log_level)
    for number in (signal.SIGTERM, signal.SIGINT):
        # At once: the next start finds out all that there would be to finish.
        signal.signal(number, lambda *_: os._exit(EXIT_STOPPED))
    try:
        parsed.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        connection.wait_for_random_pool()
        _session(parsed).run()
    except OSError as error:
        _log.error("cannot start", error=error)
    except FilterUnavailableError as error:
        _log.error("cannot start", reason=str(error))
    return EXIT_FAILED


def _session(parsed: Arguments) -> AgentSession:
    try:
        netfilter = NetfilterSocket()
    except NetfilterError as error:
        _log.warning("no netlink: conntrack and nft are unavailable", reason=str(error))
        netfilter = None
    packet_filter = KernelPacketFilter(netfilter, keep_process=True)
    state_path = parsed.state / "state"
    reconciler = RulesetReconciler(packet_filter, state_file.read(state_path))
    flush_flows = netfilter.delete_flows if netfilter is not None else None
    handler = RequestHandler(reconciler, flush_flows, state_path, parsed.resolv_conf)
    _log.info(
        "started",
        programs=packet_filter.description,
        digest=reconciler.digest[:16],
        has_drifted=reconciler.has_drifted,
    )
    return AgentSession(parsed.node.target, parsed.credentials, reconciler, packet_filter, handler)


if __name__ == "__main__":
    sys.exit(main())
