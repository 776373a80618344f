# SPDX-License-Identifier: Apache-2.0
"""Events on pods and the node's condition, from the modules that write them."""

import dnsconfig.resolve.resolver
import kata_bridge.start_gate.pod_notifier
from kata_bridge.start_gate.core.node_condition import (
    CONDITION,
    NO_POD_BLOCKED,
    REASON_MESSAGES,
    REPORTED_AFTER_S,
)

_EVENTS = {
    "kata-bridge": kata_bridge.start_gate.pod_notifier.EVENT_REASONS,
    "dnsconfig": dnsconfig.resolve.resolver.EVENT_REASONS,
}


_PAGE = """\
## Events

All are of type Warning, about a pod in the super cluster. A syncer copies them to the tenant.

| reason | posted by | meaning |
|---|---|---|
{events}

## Condition `{condition}`

Of the Node, by kata-bridge. It counts pods that the start gate has blocked for {seconds:g} s or longer.

| status | reason | meaning |
|---|---|---|
| `False` | `{no_pod}` | no pod is blocked for that long |
{reasons}
"""


def page() -> str:
    """Both tables."""
    events = (
        f"| `{reason}` | {daemon} | {meaning} |"
        for daemon, reasons in _EVENTS.items()
        for reason, meaning in reasons.items()
    )
    reasons = (
        f"| `True` | `{reason.value}` | most of them {message} |"
        for reason, message in REASON_MESSAGES.items()
    )
    return _PAGE.format(
        events="\n".join(events),
        condition=CONDITION,
        seconds=REPORTED_AFTER_S,
        no_pod=NO_POD_BLOCKED,
        reasons="\n".join(reasons),
    )
