# SPDX-License-Identifier: Apache-2.0
"""Real pages of a kubelet, cut to a few pods and freed of what is peculiar to the machine."""

from __future__ import annotations

import json
import re
from pathlib import Path

SAMPLES = Path(__file__).resolve().parent.parent / "samples"

# Which rows of the long cadvisor page are kept: a whole pod with an injected container, one
# container of the other tenant, one of the host, and two groups that are no pod's.
_KEPT_ROWS = (
    re.compile(r'container="(|POD|main|mesh-proxy)",.*namespace="[^"]*-acme-default",pod="web"'),
    re.compile(r'container="main",.*namespace="[^"]*-acme-x-default",pod="web"'),
    re.compile(r'container="main",.*namespace="kube-system",pod="node-agent"'),
    re.compile(r'id="/(labnode/kubepods/besteffort)?",'),
)
_KEPT_PODS = frozenset({"web", "node-agent"})
_MACHINE = re.compile(r'(machine_id|boot_id|system_uuid|kernelVersion|osVersion)="[^"]*"')
_DEVICE = re.compile(r'device="([^"]*)"')
_DEVICES = frozenset({"/dev/vda", "/dev/shm", "/run", "", "eth0"})  # noqa: S108 - a label, no path


def page_paths() -> dict[str, str]:
    """File name of each sample and the kubelet's path that it is of."""
    return {
        "pods.json": "/pods",
        "runningpods.json": "/runningpods/",
        "stats-summary.json": "/stats/summary",
        "metrics-resource.txt": "/metrics/resource",
        "metrics-cadvisor.txt": "/metrics/cadvisor",
        "metrics-probes.txt": "/metrics/probes",
    }


def reduce_page(name: str, text: str, cgroup: str) -> str:
    """Cut one page down. `cgroup` is the node's control group, a random name."""
    text = text.replace(cgroup, "labnode")
    if name.endswith(".json"):
        return _reduce_json(name, text)
    lines = _reduce_cadvisor(text) if "cadvisor" in name else text.splitlines()
    return "\n".join(lines) + "\n"


def _reduce_json(name: str, text: str) -> str:
    page = json.loads(text)
    if name == "stats-summary.json":
        page["pods"] = [p for p in page["pods"] if p["podRef"]["name"] in _KEPT_PODS]
        for interface in (page["node"]["network"], *page["node"]["network"]["interfaces"]):
            interface["name"] = "eth0"
    else:
        page["items"] = [i for i in page["items"] if i["metadata"]["name"] in _KEPT_PODS]
        for item in page["items"]:
            item["metadata"].pop("managedFields", None)
    return json.dumps(page, indent=1) + "\n"


def _reduce_cadvisor(text: str) -> list[str]:
    """Rows of the chosen pods, and every HELP and TYPE of a family that still has rows."""
    kept: list[str] = []
    headings: list[str] = []
    for line in text.splitlines():
        if line.startswith("#"):
            if line.startswith("# HELP"):
                headings = []
            headings.append(line)
            continue
        device = _DEVICE.search(line)
        if device is not None and device.group(1) not in _DEVICES:
            continue
        is_node_wide = "namespace=" not in line
        if is_node_wide or any(row.search(line) for row in _KEPT_ROWS):
            kept += [*headings, _MACHINE.sub(r'\1="sample"', line)]
            headings = []
    return kept
