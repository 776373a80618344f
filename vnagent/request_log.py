# SPDX-License-Identifier: Apache-2.0
"""The record of each request: its identifier, its audit line, its metric, and the date of its answer."""

import os
import time

from daemonkit.fairness.lease import Lease
from vnagent.audit_log import AuditLog
from vnagent.core import audit
from vnagent.core.access import Caller
from vnagent.core.requests import Endpoint, Request
from vnagent.metrics import AgentMetrics

# Callers whose part of the audit line is kept.
MAX_CALLERS = 256
_ID_CHARS = 16
# A call into the kernel for each request would be a noticeable part of it.
_IDS_AT_ONCE = 256


class RequestLog:
    """Writes one audit line for each decision and counts it."""

    def __init__(self, audit_log: AuditLog, metrics: AgentMetrics) -> None:
        self._audit_log = audit_log
        self._metrics = metrics
        self._callers: dict[tuple[str | None, str], str] = {}
        self._ids = ""
        self._id_at = 0
        self._stamp_second = 0
        self._stamp = ""
        self._date = ""

    def next_request_id(self) -> str:
        """16 random hexadecimal digits. The client reads them: a count would tell every tenant how
        much the others ask for."""
        at = self._id_at
        if at == len(self._ids):
            # As `secrets` makes them, without loading its 0.1 MB.
            self._ids, at = os.urandom(_IDS_AT_ONCE * _ID_CHARS // 2).hex(), 0
        self._id_at = at + _ID_CHARS
        return self._ids[at : at + _ID_CHARS]

    def must_wait(self, tenant: str) -> bool:
        """Whether the tenant's requests come faster than the audit log takes their lines."""
        return self._audit_log.must_wait(tenant)

    def reserve(self, tenant: str) -> Lease | None:
        """Room for a stream's audit line, before the kubelet is asked; None if there is none."""
        return self._audit_log.reserve(tenant)

    def record(
        self,
        caller: Caller,
        request: Request | None,
        reason: str,
        status: int,
        request_id: str,
        begun_s: float,
        *,
        room: Lease | None = None,
    ) -> None:
        """Write the line of one decision and count it, when the first bytes of its answer are known.

        `begun_s`: when its request was whole, by the monotonic clock. `room`: of `reserve`.
        """
        who = (caller.tenant, caller.identity)
        identity = self._callers.get(who)
        if identity is None:
            if len(self._callers) >= MAX_CALLERS:
                self._callers.clear()
            identity = self._callers[who] = audit.identity_of(caller)
        endpoint = Endpoint.MALFORMED if request is None else request.endpoint
        self._metrics.count_request(caller.tenant, endpoint, status, time.monotonic() - begun_s)
        if status == 429:
            self._metrics.count_limited(caller.tenant, reason)
        line = audit.render(self._timestamp(), identity, request, reason, status, request_id)
        self._audit_log.write(line, caller.tenant or "", room=room)

    @property
    def date(self) -> str:
        """The time now, for the Date field. The time of the last record would tell a tenant when another
        one sent a request."""
        self._format_second(int(time.time()))
        return self._date

    def _timestamp(self) -> str:
        """RFC 3339 in UTC with milliseconds."""
        now = time.time()
        second = int(now)
        self._format_second(second)
        return f"{self._stamp}.{int((now - second) * 1000):03d}Z"

    def _format_second(self, second: int) -> None:
        """Format the time anew once a second."""
        if second == self._stamp_second:
            return
        self._stamp_second = second
        self._stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        # RFC 9110, 5.6.7. Not email.utils, which is 0.9 MB; no daemon sets a locale for times.
        self._date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(second))
