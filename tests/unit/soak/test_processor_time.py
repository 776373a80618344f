# SPDX-License-Identifier: Apache-2.0
"""A vNode's processor time on the pages of a soak."""

import json

import pytest

from devkit.kubelet.pods import FakePod, page_for
from tests.soak.answers import OK
from tests.soak.processor_time import FELL, PAGES, VnodeTimes, vnode_seconds, with_times

PODS = (FakePod("acme-web", "shop", "s-1"), FakePod("bank-web", "shop", "s-2"))
USED_S = {("acme-web", "shop"): 1.25, ("bank-web", "shop"): 90.5}
AT_MS = 1_800_000_000_500


def page(path: str) -> bytes:
    made = page_for(path, PODS, "node-1")
    assert made is not None
    return with_times(path, made[1], USED_S, AT_MS)


def test_rows_have_the_time_of_their_pod() -> None:
    rows = [row for row in page("/metrics/resource").decode().splitlines() if row.startswith("pod_cpu")]
    assert rows == [
        f'pod_cpu_usage_seconds_total{{namespace="acme-web",pod="shop"}} 1.250 {AT_MS}',
        f'pod_cpu_usage_seconds_total{{namespace="bank-web",pod="shop"}} 90.500 {AT_MS}',
    ]


def test_a_summary_has_the_time_of_each_pod() -> None:
    pods = json.loads(page("/stats/summary"))["pods"]
    assert [(pod["cpu"]["time"], pod["cpu"]["usageCoreNanoSeconds"]) for pod in pods] == [
        ("2027-01-15T08:00:00Z", 1_250_000_000),
        ("2027-01-15T08:00:00Z", 90_500_000_000),
    ]


def test_a_vnodes_time_is_read() -> None:
    assert [vnode_seconds(path, page(path).decode()) for path in PAGES] == [987654.0, 9.0]


@pytest.mark.parametrize(
    ("path", "text"), [("/stats/summary", '{"node": {}}'), ("/metrics/resource", "x 1\n")]
)
def test_a_page_without_the_time_is_a_failure(path: str, text: str) -> None:
    with pytest.raises(ValueError, match="no processor time"):
        vnode_seconds(path, text)


def test_a_time_that_falls_is_found_on_each_page() -> None:
    times = VnodeTimes()
    found = [
        times.outcome(page, seconds)
        for page, seconds in (("a", 100.0), ("b", 50.0), ("a", 100.0), ("a", 99.5), ("a", 60.0), ("b", 51.0))
    ]
    assert found == [OK, OK, OK, FELL, "200 the processor time on a fell from 99.500 to 60.000 s", OK]
