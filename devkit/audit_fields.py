# SPDX-License-Identifier: Apache-2.0
"""The fields of vn-agent's audit line, in their order. Others rely on them: a line has exactly these."""

AUDIT_FIELDS = (
    *("time", "tenant", "identity", "endpoint", "namespace", "pod", "container"),
    *("decision", "reason", "status", "requestId"),
)
