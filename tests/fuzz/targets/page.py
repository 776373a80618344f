# SPDX-License-Identifier: Apache-2.0
"""Pages of metrics from a kubelet: prometheus_client parses what a tenant gets, and finds its pods alone.

Without the rows of another tenant, as prometheus_client reads them, the tenant's page is the same.
"""

import math

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample as TheirSample

from tenancy.ownership import Owned, OwnerIndex
from tests.fuzz.invariants import only
from tests.fuzz.target import FuzzTarget
from tests.rebuilt_pages import tenants_page
from vnagent.pages.exposition import Comment, Sample, label_text, labels, lines
from vnagent.pages.metrics import CADVISOR, PROBES, RESOURCE
from vnagent.pages.page import PageError

_UID = "e226d19c-c1e2-4a14-85d5-c46b2acb290f"
_INDEX = OwnerIndex(
    [
        Owned("ten-a", "web", "shop", "a-1", "ten-a-web", "shop", _UID, frozenset({"app"})),
        Owned("ten-a", "back", "db", "a-2", "ten-a-back", "db", "s-1002", frozenset({"app"})),
        Owned("ten-b", "web", "bank", "b-1", "ten-b-web", "bank", "s-2001", frozenset({"app"})),
    ]
)
_PAGES = (RESOURCE, CADVISOR, PROBES)
_NODE_ROWS = {
    *("node_cpu_usage_seconds_total", "node_memory_working_set_bytes", "node_swap_usage_bytes"),
    *("scrape_error", "resource_scrape_error", "container_scrape_error"),
}


def check(page: bytes) -> None:
    rows = only(PageError, _rows, page)
    if rows is None:
        assert all(only(PageError, kind.parse, page) is None for kind in _PAGES)
        return
    for row in rows:
        if not isinstance(row, Comment):
            _check_labels(row.block)
    without_others = b"".join(line for line in page.splitlines(keepends=True) if not _is_of_others(line))
    for kind in _PAGES:
        text = only(PageError, tenants_page, kind, page, _INDEX, "ten-a")
        if text is None:
            continue
        _check_page(text.decode())
        again = only(PageError, tenants_page, kind, without_others, _INDEX, "ten-a")
        if again is None:
            # Without any row the page is refused as empty.
            assert without_others.count(b"\n") < page.count(b"\n")
        else:
            # Families stand in the order of their first row, whosever it is: the kubelet does not mix them.
            assert sorted(again.splitlines()) == sorted(text.splitlines())


def _rows(page: bytes) -> list[Sample | Comment]:
    return list(lines(page))


def _check_labels(block: str) -> None:
    found = only(PageError, labels, block) if block else {}
    if found is None:
        return
    assert labels("{" + label_text(found.items()) + "}") == found
    if found:
        (theirs,) = _samples(f"x{block} 1\n")
        assert theirs.labels == found


def _samples(text: str) -> list[TheirSample]:
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def _is_of_others(line: bytes) -> bool:
    if line.startswith(b"#"):
        return False
    try:
        samples = _samples(line.decode())
    except (ValueError, IndexError, KeyError):
        return False
    return any(sample.labels.get("namespace") == "ten-b-web" for sample in samples)


def _check_page(text: str) -> None:
    rows = _samples(text)
    seen = set()
    for row in rows:
        key = (row.name, tuple(sorted(row.labels.items())))
        assert key not in seen, f"twice: {key}"
        seen.add(key)
        if row.name in _NODE_ROWS:
            assert not row.labels
            continue
        assert (row.labels["namespace"], row.labels["pod"]) in {("web", "shop"), ("back", "db")}
        assert row.labels.get("container", "") in ("", "app")
        assert row.labels.get("pod_uid", "a-1") in ("a-1", "a-2")
        assert not {"id", "name", "image"} & row.labels.keys()
        assert not math.isnan(row.value) or "NaN" in text


_RESOURCE = b"""\
# HELP container_cpu_usage_seconds_total [STABLE] Words
# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container="app",namespace="ten-a-back",pod="db"} 1 1795192090157
container_cpu_usage_seconds_total{container="app",namespace="ten-a-web",pod="shop"} 0.013236432 1795192090157
container_cpu_usage_seconds_total{container="app",namespace="ten-b-web",pod="bank"} 7 1795192090157
# HELP node_cpu_usage_seconds_total [STABLE] Words
# TYPE node_cpu_usage_seconds_total counter
node_cpu_usage_seconds_total 987654.5 1795192099999
# TYPE pod_cpu_usage_seconds_total counter
pod_cpu_usage_seconds_total{namespace="ten-a-web",pod="shop"} 2.25 1795192090160
pod_cpu_usage_seconds_total{namespace="ten-b-web",pod="bank"} 400 1795192090170
scrape_error 1
"""
_CADVISOR = (
    b"# TYPE container_memory_rss gauge\n"
    b'container_memory_rss{container="",id="/kubepods/pod' + _UID.encode() + b'",image="",name="",'
    b'namespace="ten-a-web",pod="shop"} 1e6 1795192090160\n'
    b'container_memory_rss{container="",id="/kubepods/pod' + _UID.encode() + b'/x",image="pause",name="x",'
    b'namespace="ten-a-web",pod="shop"} 1e3 1795192090160\n'
    b'container_memory_rss{container="app",device="a\\"b\\\\c\\n{}",namespace="ten-a-web",pod="shop"} +Inf\n'
    b'container_memory_rss{container="app",device="namespace=\\"ten-a-web\\"",'
    b'namespace="ten-b-web",pod="bank"} 5\n'
)
_PROBES = (
    b"# TYPE prober_probe_total counter\n"
    b'prober_probe_total{container="app",namespace="ten-a-web",pod="shop",pod_uid="' + _UID.encode() + b'",'
    b'probe_type="Liveness",result="successful"} 15\n'
    b'prober_probe_total{container="app",namespace="ten-b-web",pod="bank",pod_uid="s-2001",'
    b'result="failed"} 1\n'
)
TARGET = FuzzTarget(
    check,
    seeds=(_RESOURCE, _CADVISOR, _PROBES),
    tokens=(
        *(
            b"\n",
            b"\r",
            b"\\n",
            b'\\"',
            b"\\\\",
            b"\\",
            b'"',
            b"{",
            b"}",
            b",",
            b"=",
            b" ",
            b"\t",
            b"#",
            b"\xc2\x85",
        ),
        *(b'namespace="ten-b-web"', b'namespace="ten-a-web",pod="shop"', b'pod="bank"', b'container="app",'),
        *(b'",namespace="ten-b-web"', b"# HELP ", b"# TYPE ", b" counter\n", b' # {a="b"} 1', b"# EOF\n"),
        *(
            b"NaN",
            b"-Inf",
            b"1e999",
            b"9" * 19,
            b" -1",
            b".5",
            b"5.",
            b"\xe2\x80\xa8",
            b"\xf0\x9f\x90\xb3",
            b"\x00",
        ),
        *(
            b"pod_memory_working_set_bytes",
            b"container_scrape_error",
            b"prober_probe_duration_seconds_bucket",
        ),
    ),
)
