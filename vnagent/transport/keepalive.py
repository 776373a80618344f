# SPDX-License-Identifier: Apache-2.0
"""How vn-agent learns that a peer has vanished while data for it is in flight.

The kernel's keepalive (daemonkit.keepalive) asks a connection on which nothing is in flight. With data in
flight it leaves the decision to retransmission, which gives up after 15 minutes and more (tcp(7),
tcp_retries2). TCP_USER_TIMEOUT would be sooner, and would also end a client that reads nothing for as long:
since Linux 5.11 it counts the probes of a zero window that are answered (tcp_probe_timer). `kubectl logs -f |
less` is such a client. So vn-agent reads TCP_INFO and looks for what is not answered.
"""

import struct
from typing import Final

# With data in flight: nothing was acknowledged for so long, although it was sent again. Exponential back-off
# from 0.2 s has sent it nine times by then.
SILENT_MS: Final = 120_000
_LOST_COPIES: Final = 5
# A peer without room is asked every 120 s at last (TCP_RTO_MAX): one lost question is not enough.
_PROBES: Final = 2

# struct tcp_info of linux/tcp.h, whose fields keep their places: tcpi_retransmits and tcpi_probes count those
# without an answer, tcpi_last_ack_recv is in ms.
INFO_BYTES: Final = 60
_COUNTS = struct.Struct("=2xBB")
_LAST_ACK = struct.Struct("=56xI")


def has_vanished(info: bytes, silent_ms: int = SILENT_MS) -> bool:
    """Whether TCP_INFO shows a peer that has acknowledged nothing for `silent_ms` of what it was sent again.

    False where the kernel tells less.
    """
    if len(info) < INFO_BYTES:
        return False
    retransmits, probes = _COUNTS.unpack_from(info)
    (last_ack_ms,) = _LAST_ACK.unpack_from(info)
    is_unanswered = retransmits >= _LOST_COPIES or probes >= _PROBES
    return bool(is_unanswered and last_ack_ms >= silent_ms)
