# SPDX-License-Identifier: Apache-2.0
"""A guest's agent with a packet filter without a kernel; a line on stdin plays the stranger."""

import sys
import threading
from pathlib import Path

from daemonkit import logs
from devkit.fake_packet_filter import FakePacketFilter
from guest_agent.reconciler import Keeper
from guest_agent.request_handler import Answers
from guest_agent.session import Link
from ruleset.model import Family


def main() -> None:
    """Arguments: what grpc dials, the directory of the credentials, a directory for files."""
    target, credentials, directory = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    logs.setup(level="debug")
    packet_filter = FakePacketFilter()
    keeper = Keeper(packet_filter, None)
    answers = Answers(
        keeper, lambda flows: len(list(flows)), directory / "state", [directory / "resolv.conf"]
    )
    threading.Thread(target=_stranger, args=(packet_filter,), daemon=True).start()
    Link(target, credentials, keeper, packet_filter, answers).run()


def _stranger(packet_filter: FakePacketFilter) -> None:
    for line in sys.stdin:
        family, table, chain = line.split()
        packet_filter.tables[Family(family)][table][chain].clear()


if __name__ == "__main__":
    main()
