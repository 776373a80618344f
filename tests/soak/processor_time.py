# SPDX-License-Identifier: Apache-2.0
"""The processor time of pods and of vNodes. A vNode's must never fall. Values in, verdict out."""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime

from tests.soak.answers import OK

PAGES = ("/metrics/resource", "/stats/summary")
# What a page that is lost with a killed vn-agent may take with it: of a pod that ends before the next start,
# the last 15 s (vnagent/README.md, "A vNode's figures"), and what it used while its last page was on its way.
MOST_LOST_S = 30.0
FELL = "200 the processor time fell by what a pod used last"
_POD_ROW = re.compile(
    r'(?P<head>pod_cpu_usage_seconds_total\{namespace="(?P<namespace>[^"]++)",pod="(?P<pod>[^"]++)"\}) .*+'
)
_NODE_ROW = re.compile(r"^node_cpu_usage_seconds_total (?P<seconds>[0-9.e+-]++) ", re.MULTILINE)

PodTimes = Mapping[tuple[str, str], float]
"""Seconds by namespace and name."""


def with_times(path: str, page: bytes, used_s: PodTimes, at_ms: int) -> bytes:
    """A fake kubelet's page, with the processor time of its pods at `at_ms`, in ms since the epoch."""
    if path == "/metrics/resource":
        text = _POD_ROW.sub(
            lambda row: f"{row['head']} {used_s[row['namespace'], row['pod']]:.3f} {at_ms}", page.decode()
        )
        return text.encode()
    summary = json.loads(page)
    for pod in summary["pods"]:
        name = pod["podRef"]["namespace"], pod["podRef"]["name"]
        pod["cpu"] = pod["cpu"] | {"time": _rfc3339(at_ms), "usageCoreNanoSeconds": round(used_s[name] * 1e9)}
    return json.dumps(summary).encode()


def _rfc3339(at_ms: int) -> str:
    """The kubelet has whole seconds there."""
    return datetime.fromtimestamp(at_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def vnode_seconds(path: str, text: str) -> float:
    """The vNode's processor time on a tenant's page. Raises ValueError where it has none."""
    if path == "/stats/summary":
        try:
            return float(json.loads(text)["node"]["cpu"]["usageCoreNanoSeconds"]) / 1e9
        except KeyError:
            raise ValueError("the summary has no processor time of the node") from None
    row = _NODE_ROW.search(text)
    if row is None:
        raise ValueError("the page has no processor time of the node")
    return float(row["seconds"])


class VnodeTimes:
    """The last processor time that one tenant has read on each page."""

    def __init__(self) -> None:
        self._last_s: dict[str, float] = {}

    def outcome(self, path: str, seconds: float) -> str:
        """`ok`, or how the time fell. FELL, by MOST_LOST_S at most, is what a fault may allow."""
        before_s = self._last_s.get(path, 0.0)
        self._last_s[path] = seconds
        if seconds >= before_s:
            return OK
        if before_s - seconds <= MOST_LOST_S:
            return FELL
        return f"200 the processor time on {path} fell from {before_s:.3f} to {seconds:.3f} s"
