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
from syncer.networks import desired as network_events
from syncer.work import reports as tenant_reports

# The recorder takes only members of EventReason: mypy finds any other reason.
EVENTS: tuple[tuple[str, type[EventReason], Mapping[Any, str]], ...] = (
    ("kata-bridge", pod_notifier.GateEventReason, pod_notifier.EVENT_REASONS),
    ("dnsconfig", resolver.ResolverEventReason, resolver.EVENT_REASONS),
    ("vc-syncer", tenant_reports.SyncEvent, tenant_reports.EVENT_REASONS),
    ("vc-syncer", network_events.NetworkEvent, network_events.EVENT_REASONS),
)


_PAGE = """\
## Events

All are of type Warning. Those of kata-bridge and dnsconfig are about a pod of the super cluster, in its
namespace; a syncer copies them to the pod's tenant. Those of vc-syncer are in the tenant, about the tenant's
own object of any kind.

| reason | posted by | meaning |
|---|---|---|
{events}

## Condition `{condition}`

Of the Node, by kata-bridge. It counts pods that the start gate has blocked for {seconds:g} s or longer.

| status | reason | meaning |
|---|---|---|
| `False` | `{no_pod}` | no pod is blocked for that long |
{reasons}

## Condition `{synced}`

Of a tenant's Pod, by vc-syncer. A pod that was never held back has no such condition.

| status | reason | meaning |
|---|---|---|
| `False` | `{refused}`, `{conflict}`, `{failed}` | as the Event of that name |
| `False` | another reason | what the pod waits for, after {waits:g} s |
| `True` | `Synced` | what held the pod back is over |
"""


def page() -> str:
    """Both tables. Raises KeyError for a reason without a meaning."""
    events = (
        f"| `{reason}` | {daemon} | {meanings[reason]} |"
        for daemon, reasons, meanings in EVENTS
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
        synced=tenant_reports.SYNCED_CONDITION,
        refused=tenant_reports.SyncEvent.REFUSED,
        conflict=tenant_reports.SyncEvent.CONFLICT,
        failed=tenant_reports.SyncEvent.FAILED,
        waits=tenant_reports.REPORT_WAIT_S,
    )
