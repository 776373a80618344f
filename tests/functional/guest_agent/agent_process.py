# SPDX-License-Identifier: Apache-2.0
"""A guest agent with a fake packet filter. A line on stdin is a foreign change: family, table, chain."""

import sys
import threading
from pathlib import Path

from daemonkit import logs
from devkit.fake_packet_filter import FakePacketFilter
from guest_agent.reconciler import RulesetReconciler
from guest_agent.request_handler import RequestHandler
from guest_agent.session import AgentSession
from ruleset.model import Family


def main() -> None:
    """Arguments: the node's address, the directory of the credentials, a directory for files."""
    target, credentials, directory = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    logs.setup(level="debug")
    packet_filter = FakePacketFilter()
    reconciler = RulesetReconciler(packet_filter, None)
    handler = RequestHandler(
        reconciler, lambda flows: len(list(flows)), directory / "state", [directory / "resolv.conf"]
    )
    threading.Thread(target=_change_rules, args=(packet_filter,), daemon=True).start()
    AgentSession(target, credentials, reconciler, packet_filter, handler).run()


def _change_rules(packet_filter: FakePacketFilter) -> None:
    for line in sys.stdin:
        family, table, chain = line.split()
        packet_filter.iptables[Family(family)].tables[table][chain].clear()


if __name__ == "__main__":
    main()
