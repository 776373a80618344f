# SPDX-License-Identifier: Apache-2.0
"""Events on pods and the node's condition, from the modules that write them."""

from collections.abc import Mapping
from typing import Any

from daemonkit.kube.resources import EventReason
from dnsconfig.resolve import resolver
from kata_bridge.start_gate import pod_notifier
from kata_bridge.start_gate.core.node_condition import (
    CONDITION,
    NO_POD_BLOCKED,
    REASON_MESSAGES,
    REPORTED_AFTER_S,
)

# The recorder takes only members of EventReason: mypy finds any other reason.
EVENTS: Mapping[str, tuple[type[EventReason], Mapping[Any, str]]] = {
    "kata-bridge": (pod_notifier.GateEventReason, pod_notifier.EVENT_REASONS),
    "dnsconfig": (resolver.ResolverEventReason, resolver.EVENT_REASONS),
}


_PAGE = """\
## Events

All are of type Warning, about a pod of the super cluster, in its namespace. A syncer copies those about a
tenant's pod to the tenant.

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
    """Both tables. Raises KeyError for a reason without a meaning."""
    events = (
        f"| `{reason}` | {daemon} | {meanings[reason]} |"
        for daemon, (reasons, meanings) in EVENTS.items()
        for reason in reasons
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
