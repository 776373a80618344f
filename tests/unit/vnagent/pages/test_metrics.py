# SPDX-License-Identifier: Apache-2.0
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tenancy.ownership import ContainerPolicy, Owned, OwnerIndex
from tests.rebuilt_pages import tenants_page
from vnagent.pages.metrics import CADVISOR, PROBES, RESOURCE
from vnagent.pages.node_cpu import CpuSample, NodeCpu
from vnagent.pages.page import PageError, PageKind, View
from vnagent.pages.podlist import owned_pods

SAMPLES = Path(__file__).parents[3] / "k8s" / "samples"
SHOP_UID = "e226d19c-c1e2-4a14-85d5-c46b2acb290f"
OLD_UID = "e226d19c-c1e2-4a14-85d5-000000000000"
IMAGES = (("app", "registry.example/shop:1"),)
INDEX = OwnerIndex(
    [
        Owned("ten-a", "web", "shop", "a-1", "ten-a-web", "shop", SHOP_UID, frozenset({"app"}), "", IMAGES),
        Owned("ten-a", "back", "db", "a-2", "ten-a-back", "db", "s-1002", frozenset({"app"})),
        Owned("ten-b", "web", "bank", "b-1", "ten-b-web", "bank", "s-2001", frozenset({"app"})),
    ]
)


def rebuilt(page: PageKind[Any], text: str, tenant: str = "ten-a") -> str:
    return tenants_page(page, text.encode(), INDEX, tenant).decode()


RESOURCE_PAGE = """\
# HELP container_cpu_usage_seconds_total [STABLE] Words
# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container="app",namespace="ten-a-back",pod="db"} 1 1795192090157
container_cpu_usage_seconds_total{container="app",namespace="ten-a-web",pod="shop"} 0.013236432 1795192090157
container_cpu_usage_seconds_total{container="app",namespace="ten-b-web",pod="bank"} 7 1795192090157
container_cpu_usage_seconds_total{container="etcd",namespace="kube-system",pod="etcd-node-1"} 8 1795192090157
container_cpu_usage_seconds_total{container="mesh-proxy",namespace="ten-a-web",pod="shop"} 9 1795192090157
# HELP container_start_time_seconds [STABLE] Words
# TYPE container_start_time_seconds gauge
container_start_time_seconds{container="app",namespace="ten-a-web",pod="shop"} 1.7951920738758247e+09
# HELP container_swap_limit_bytes [ALPHA] Words
# TYPE container_swap_limit_bytes gauge
container_swap_limit_bytes{container="app",namespace="ten-b-web",pod="bank"} 0 1795192097760
# HELP node_cpu_usage_seconds_total [STABLE] Words
# TYPE node_cpu_usage_seconds_total counter
node_cpu_usage_seconds_total 987654.5 1795192099999
# HELP node_memory_working_set_bytes [STABLE] Words
# TYPE node_memory_working_set_bytes gauge
node_memory_working_set_bytes 4.294967296e+09 1795192099999
# HELP node_swap_usage_bytes [ALPHA] Words
# TYPE node_swap_usage_bytes gauge
node_swap_usage_bytes 77 1795192099999
# HELP pod_cpu_usage_seconds_total [STABLE] Words
# TYPE pod_cpu_usage_seconds_total counter
pod_cpu_usage_seconds_total{namespace="ten-a-back",pod="db"} 1.5 1795192090150
pod_cpu_usage_seconds_total{namespace="ten-a-web",pod="shop"} 2.25 1795192090160
pod_cpu_usage_seconds_total{namespace="ten-b-web",pod="bank"} 400 1795192090170
# HELP pod_memory_working_set_bytes [STABLE] Words
# TYPE pod_memory_working_set_bytes gauge
pod_memory_working_set_bytes{namespace="ten-a-back",pod="db"} 1.048576e+06 1795192090150
pod_memory_working_set_bytes{namespace="ten-a-web",pod="shop"} 2097152 1795192090150
# HELP resource_scrape_error [STABLE] Words
# TYPE resource_scrape_error gauge
resource_scrape_error 1
# HELP scrape_error [ALPHA] Words
# TYPE scrape_error gauge
scrape_error 1
# HELP future_metric_bytes [ALPHA] Words
# TYPE future_metric_bytes gauge
future_metric_bytes{namespace="ten-a-web",pod="shop"} 1
"""


def test_resource() -> None:
    assert (
        rebuilt(RESOURCE, RESOURCE_PAGE)
        == """\
# HELP container_cpu_usage_seconds_total [STABLE] Words
# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container="app",namespace="web",pod="shop"} 0.013236432 1795192090157
container_cpu_usage_seconds_total{container="app",namespace="back",pod="db"} 1 1795192090157
# HELP container_start_time_seconds [STABLE] Words
# TYPE container_start_time_seconds gauge
container_start_time_seconds{container="app",namespace="web",pod="shop"} 1.7951920738758247e+09
# HELP node_cpu_usage_seconds_total [STABLE] Words
# TYPE node_cpu_usage_seconds_total counter
node_cpu_usage_seconds_total 3.75 1795192090160
# HELP node_memory_working_set_bytes [STABLE] Words
# TYPE node_memory_working_set_bytes gauge
node_memory_working_set_bytes 3145728 1795192090150
# HELP node_swap_usage_bytes [ALPHA] Words
# TYPE node_swap_usage_bytes gauge
node_swap_usage_bytes 0 1795192099999
# HELP pod_cpu_usage_seconds_total [STABLE] Words
# TYPE pod_cpu_usage_seconds_total counter
pod_cpu_usage_seconds_total{namespace="web",pod="shop"} 2.25 1795192090160
pod_cpu_usage_seconds_total{namespace="back",pod="db"} 1.5 1795192090150
# HELP pod_memory_working_set_bytes [STABLE] Words
# TYPE pod_memory_working_set_bytes gauge
pod_memory_working_set_bytes{namespace="web",pod="shop"} 2097152 1795192090150
pod_memory_working_set_bytes{namespace="back",pod="db"} 1.048576e+06 1795192090150
# HELP resource_scrape_error [STABLE] Words
# TYPE resource_scrape_error gauge
resource_scrape_error 1
# HELP scrape_error [ALPHA] Words
# TYPE scrape_error gauge
scrape_error 1
"""
    )


def test_resource_without_pods_has_an_idle_node() -> None:
    rows = [line for line in rebuilt(RESOURCE, RESOURCE_PAGE, "ten-c").splitlines() if line[0] != "#"]
    assert rows == [
        "node_cpu_usage_seconds_total 0.000000001 1795192099999",
        "node_memory_working_set_bytes 1 1795192099999",
        "node_swap_usage_bytes 0 1795192099999",
        "resource_scrape_error 1",
        "scrape_error 1",
    ]


NODE_ROWS = {
    "node_cpu_usage_seconds_total": "987654.5 1795192099999",
    "node_memory_working_set_bytes": "4.294967296e+09 1795192099999",
    "node_swap_usage_bytes": "77 1795192099999",
}


def node_rows(page: bytes) -> dict[str, str]:
    rows = (line.partition(" ") for line in page.decode().splitlines())
    return {name: value for name, _, value in rows if name in NODE_ROWS}


def test_the_nodes_own_figures_where_configured() -> None:
    parsed = RESOURCE.parse(RESOURCE_PAGE.encode())
    own = CpuSample(3_750_000_000, 1795192090160)
    view = View(INDEX, "ten-a", own, has_node_figures=True)
    assert node_rows(RESOURCE.render(parsed, view)) == NODE_ROWS


def test_a_pods_end_leaves_its_processor_time() -> None:
    """`top node` has a figure after a pod's end, and `rate()` sees no restart of the counter."""
    node_cpu = NodeCpu()
    assert RESOURCE.read_cpu is not None
    shown = []
    for page in (
        RESOURCE_PAGE,
        RESOURCE_PAGE.replace(
            'pod_cpu_usage_seconds_total{namespace="ten-a-web",pod="shop"} 2.25 1795192090160\n', ""
        ).replace('pod="db"} 1.5 1795192090150', 'pod="db"} 1.625 1795192105150'),
    ):
        parsed = RESOURCE.parse(page.encode())
        node_cpu.take(RESOURCE.read_cpu(parsed), INDEX)
        rows = node_rows(RESOURCE.render(parsed, View(INDEX, "ten-a", node_cpu.total("ten-a"))))
        shown.append(rows["node_cpu_usage_seconds_total"])
    assert shown == ["3.75 1795192090160", "3.875 1795192105150"]


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1", "1e300", "1e10"])
def test_a_processor_time_that_is_none_is_not_summed(value: str) -> None:
    page = RESOURCE_PAGE.replace('pod="shop"} 2.25', f'pod="shop"}} {value}')
    rows = node_rows(rebuilt(RESOURCE, page).encode())
    assert rows["node_cpu_usage_seconds_total"] == "1.5 1795192090150"


def test_a_time_before_1970_is_none() -> None:
    """As Go's zero time. It would be saved, and could not be read again."""
    page = RESOURCE_PAGE.replace('pod="shop"} 2.25 1795192090160', 'pod="shop"} 2.25 -62135596800000')
    assert node_rows(rebuilt(RESOURCE, page).encode())["node_cpu_usage_seconds_total"] == "1.5 1795192090150"


POD = f"/kubepods/besteffort/pod{SHOP_UID}"
SLICE = f"/kubepods.slice/kubepods-pod{SHOP_UID.replace('-', '_')}.slice"

CADVISOR_PAGE = f"""\
# HELP cadvisor_version_info Words
# TYPE cadvisor_version_info gauge
cadvisor_version_info{{cadvisorRevision="",kernelVersion="6.1",osVersion="Debian"}} 1
# HELP container_cpu_usage_seconds_total Words
# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{{container="",cpu="total",id="/",image="",name="",namespace="",pod=""}} 99 17
container_cpu_usage_seconds_total{{container="",cpu="total",id="/system.slice/kubelet",image="",name="kubelet"}} 99 17
container_cpu_usage_seconds_total{{container="",cpu="total",id="{POD}",image="",name="",namespace="ten-a-web",pod="shop"}} 5 17
container_cpu_usage_seconds_total{{container="",cpu="total",id="{POD}/84d7",image="pause:1",name="84d7",namespace="ten-a-web",pod="shop"}} 1 17
container_cpu_usage_seconds_total{{container="app",cpu="total",id="{POD}/3bd1",image="shop:1",name="3bd1",namespace="ten-a-web",pod="shop"}} 2 17
container_cpu_usage_seconds_total{{container="app",cpu="total",id="{SLICE}/3bd0",image="shop:1",name="3bd0",namespace="ten-a-web",pod="shop"}} 3 17
container_cpu_usage_seconds_total{{container="app",cpu="total",id="/kubepods/pod{OLD_UID}/1",image="x",name="1",namespace="ten-a-web",pod="shop"}} 4 17
container_cpu_usage_seconds_total{{container="mesh-proxy",cpu="total",id="{POD}/7293",image="mesh:1",name="7293",namespace="ten-a-web",pod="shop"}} 6 17
container_cpu_usage_seconds_total{{container="app",cpu="total",id="/kubepods/pod1/2",image="x",name="2",namespace="ten-b-web",pod="bank"}} 7 17
# HELP container_fs_limit_bytes Words
# TYPE container_fs_limit_bytes gauge
container_fs_limit_bytes{{container="app",device="/dev/vda",id="x",image="",name="x",namespace="ten-a-web",pod="shop"}} 2.7e+11 17
# HELP container_fs_reads_total Words
# TYPE container_fs_reads_total counter
container_fs_reads_total{{container="app",device="/dev/vda",id="x",image="",name="x",namespace="ten-a-web",pod="shop"}} 8 17
# HELP container_network_receive_bytes_total Words
# TYPE container_network_receive_bytes_total counter
container_network_receive_bytes_total{{container="",id="{POD}/84d7",image="pause:1",interface="eth0",name="84d7",namespace="ten-a-web",pod="shop"}} 4876 17
# HELP container_scrape_error Words
# TYPE container_scrape_error gauge
container_scrape_error 1
# HELP container_start_time_seconds Words
# TYPE container_start_time_seconds gauge
container_start_time_seconds{{container="app",id="{POD}/3bd1",image="shop:1",name="3bd1",namespace="ten-a-web",pod="shop"}} 100 17
container_start_time_seconds{{container="app",id="{SLICE}/3bd0",image="shop:1",name="3bd0",namespace="ten-a-web",pod="shop"}} 200 17
# HELP container_custom_app_metric_1 Words
# TYPE container_custom_app_metric_1 gauge
container_custom_app_metric_1{{container="app",namespace="ten-a-web",pod="shop"}} 1.1
# HELP machine_cpu_cores Words
# TYPE machine_cpu_cores gauge
machine_cpu_cores{{boot_id="b",machine_id="m",system_uuid="s"}} 2
"""  # noqa: E501 - rows as they come from a kubelet


def test_cadvisor() -> None:
    assert (
        rebuilt(CADVISOR, CADVISOR_PAGE)
        == """\
# HELP container_cpu_usage_seconds_total Words
# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container="",cpu="total",namespace="web",pod="shop"} 5 17
container_cpu_usage_seconds_total{container="app",cpu="total",image="registry.example/shop:1",namespace="web",pod="shop"} 3 17
# HELP container_fs_reads_total Words
# TYPE container_fs_reads_total counter
container_fs_reads_total{container="app",device="/dev/vda",image="registry.example/shop:1",namespace="web",pod="shop"} 8 17
# HELP container_network_receive_bytes_total Words
# TYPE container_network_receive_bytes_total counter
container_network_receive_bytes_total{container="",interface="eth0",namespace="web",pod="shop"} 4876 17
# HELP container_scrape_error Words
# TYPE container_scrape_error gauge
container_scrape_error 1
# HELP container_start_time_seconds Words
# TYPE container_start_time_seconds gauge
container_start_time_seconds{container="app",image="registry.example/shop:1",namespace="web",pod="shop"} 200 17
"""  # noqa: E501 - rows as they go to a scraper
    )


def test_a_pods_row_replaces_its_sandboxs() -> None:
    """As the kubelet writes them since 1.24 (dockershim's "POD" is gone): both with an empty container."""
    pod = 'namespace="ten-a-web",pod="shop"'
    rows = [
        f'container_threads{{container="",id="{POD}/84d7",image="p",name="84d7",{pod}}} 1',
        f'container_threads{{container="",id="{POD}",image="",name="",{pod}}} 5',
    ]
    for page in ("\n".join(rows) + "\n", "\n".join(reversed(rows)) + "\n"):
        assert rebuilt(CADVISOR, page) == 'container_threads{container="",namespace="web",pod="shop"} 5\n'
    assert rebuilt(CADVISOR, rows[0] + "\n") == (
        'container_threads{container="",namespace="web",pod="shop"} 1\n'
    )


@pytest.mark.parametrize(
    "trick",
    [
        # The text of the true labels within another label, before and after them.
        r'{image="a\",namespace=\"ten-a-web\",pod=\"shop",namespace="ten-b-web",pod="bank"}',
        r'{namespace="ten-b-web",pod="bank",image="a\",namespace=\"ten-a-web\",pod=\"shop"}',
        r'{image="}",namespace="ten-b-web",pod="bank",id="{namespace=\"ten-a-web\",pod=\"shop\"}"}',
        r'{image="a\\",namespace="ten-b-web",pod="bank",id="\",namespace=\"ten-a-web"}',
        '{Namespace="ten-a-web",pod="shop"}',
        '{exported_namespace="ten-a-web",namespace="ten-b-web",pod="bank"}',
        '{namespace="ten-a-web"}',
        '{pod="shop"}',
        '{namespace="ten-a-web",pod=""}',
        '{namespace="",pod="shop"}',
        '{namespace="ten-a-web ",pod="shop"}',
        '{namespace="ten-a",pod="shop"}',
        '{namespace="web",pod="shop"}',
        '{container="app2",namespace="ten-a-web",pod="shop"}',
        "",
        "{}",
    ],
)
def test_rows_that_resemble_the_tenants_are_left_out(trick: str) -> None:
    mine = 'container_memory_swap{container="app",namespace="ten-a-web",pod="shop"} 1\n'
    out = rebuilt(CADVISOR, f"container_memory_rss{trick} 1\n{mine}container_memory_cache{trick} 1\n")
    assert out == (
        'container_memory_swap{container="app",image="registry.example/shop:1",'
        'namespace="web",pod="shop"} 1\n'
    )


def test_labels_are_written_escaped() -> None:
    page = r'container_fs_reads_total{device="a\\b\"c\nd",namespace="ten-a-web",pod="shop"} 1' + "\n"
    assert rebuilt(CADVISOR, page) == page.replace("ten-a-web", "web")


PROBES_PAGE = f"""\
# HELP prober_probe_duration_seconds [ALPHA] Words
# TYPE prober_probe_duration_seconds histogram
prober_probe_duration_seconds_bucket{{container="app",namespace="ten-a-web",pod="shop",probe_type="Readiness",le="0.005"}} 1
prober_probe_duration_seconds_bucket{{container="app",namespace="ten-a-web",pod="shop",probe_type="Readiness",le="+Inf"}} 2
prober_probe_duration_seconds_sum{{container="app",namespace="ten-a-web",pod="shop",probe_type="Readiness"}} 0.25
prober_probe_duration_seconds_count{{container="app",namespace="ten-a-web",pod="shop",probe_type="Readiness"}} 2
prober_probe_duration_seconds_count{{container="mesh-proxy",namespace="ten-a-web",pod="shop",probe_type="Readiness"}} 3
prober_probe_duration_seconds_count{{container="app",namespace="ten-b-web",pod="bank",probe_type="Readiness"}} 4
# HELP prober_probe_total [BETA] Words
# TYPE prober_probe_total counter
prober_probe_total{{container="app",namespace="ten-a-web",pod="shop",pod_uid="{SHOP_UID}",probe_type="Readiness",result="successful"}} 5
prober_probe_total{{container="app",namespace="ten-a-web",pod="shop",pod_uid="{OLD_UID}",probe_type="Readiness",result="successful"}} 6
prober_probe_total{{container="app",namespace="ten-b-web",pod="bank",pod_uid="s-2001",probe_type="Readiness",result="failed"}} 7
"""  # noqa: E501 - rows as they come from a kubelet


PROBES_REBUILT = """\
# HELP prober_probe_duration_seconds [ALPHA] Words
# TYPE prober_probe_duration_seconds histogram
prober_probe_duration_seconds_bucket{container="app",le="0.005",namespace="web",pod="shop",probe_type="Readiness"} 1
prober_probe_duration_seconds_bucket{container="app",le="+Inf",namespace="web",pod="shop",probe_type="Readiness"} 2
prober_probe_duration_seconds_sum{container="app",namespace="web",pod="shop",probe_type="Readiness"} 0.25
prober_probe_duration_seconds_count{container="app",namespace="web",pod="shop",probe_type="Readiness"} 2
# HELP prober_probe_total [BETA] Words
# TYPE prober_probe_total counter
prober_probe_total{container="app",namespace="web",pod="shop",pod_uid="a-1",probe_type="Readiness",result="successful"} 5
"""  # noqa: E501 - rows as they go to a scraper


def test_probes() -> None:
    assert rebuilt(PROBES, PROBES_PAGE) == PROBES_REBUILT


def test_no_probes_are_no_error() -> None:
    assert rebuilt(PROBES, "") == ""
    assert rebuilt(PROBES, PROBES_PAGE, "ten-c") == ""


@pytest.mark.parametrize("page", [RESOURCE, CADVISOR])
@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"# HELP a Words\n",
        b"\x1f\x8b\x08\x00",
        b"\x28\xb5\x2f\xfd",
        b"<html>\n",
        b"Unauthorized\n",
        RESOURCE_PAGE[:700].encode(),
        CADVISOR_PAGE[:-5].encode(),
        b'container_memory_rss{namespace="a",namespace="b",pod="c"} 1\n'
        b'container_cpu_usage_seconds_total{namespace="a",namespace="b",pod="c"} 1\n',
    ],
)
def test_another_page_is_an_error(page: PageKind[Any], bad: bytes) -> None:
    with pytest.raises(PageError):
        tenants_page(page, bad, INDEX, "ten-a")


@pytest.mark.parametrize(
    ("name", "page"), [("resource", RESOURCE), ("cadvisor", CADVISOR), ("probes", PROBES)]
)
def test_a_real_kubelets_page(name: str, page: PageKind[Any]) -> None:
    """Every row is the tenant's, no two are one series, and nothing of the node is left."""
    pods, _ = owned_pods((SAMPLES / "pods.json").read_bytes(), ContainerPolicy(frozenset({"mesh-proxy"})))
    index = OwnerIndex(pods)
    for tenant in {pod.tenant for pod in pods}:
        mine = {(pod.namespace, pod.name): pod for pod in index.pods_of(tenant)}
        out = tenants_page(page, (SAMPLES / f"metrics-{name}.txt").read_bytes(), index, tenant).decode()
        samples = [each for family in text_string_to_metric_families(out) for each in family.samples]
        series = [(each.name, tuple(sorted(each.labels.items()))) for each in samples]
        assert len(series) == len(set(series))
        of_pods = [each for each in samples if each.labels]
        assert len(of_pods) > 10
        for each in of_pods:
            pod = mine[each.labels["namespace"], each.labels["pod"]]
            assert each.labels.get("container", "") in {"", *pod.containers}
        assert {each.name for each in samples if not each.labels} <= {
            "node_cpu_usage_seconds_total",
            "node_memory_working_set_bytes",
            "node_swap_usage_bytes",
            "resource_scrape_error",
            "container_scrape_error",
        }
        assert not any(word in out for word in ("mesh-proxy", "tenant-1", "machine", "pause", "/kubepods"))


def test_a_row_without_its_uid_does_not_come_twice() -> None:
    """A scraper refuses a page with one row twice (found by `make fuzz TARGETS=page`)."""
    row = 'container_memory_rss{{container="app",id="{id}",namespace="ten-a-web",pod="shop"}} {value}\n'
    identified = row.format(id=f"/kubepods/pod{SHOP_UID}/x", value=2)
    for page in (row.format(id="/x", value=1) + identified, identified + row.format(id="/x", value=1)):
        assert rebuilt(CADVISOR, page) == (
            'container_memory_rss{container="app",image="registry.example/shop:1",'
            'namespace="web",pod="shop"} 2\n'
        )


DEAD, LIVE = f"{POD}/dead", f"{POD}/live"


def twins(first: str, second: str, *, starts: dict[str, int], times: dict[str, str]) -> str:
    """A container and its dead predecessor in two families and their starts, as cadvisor may have both."""
    text = ""
    for family in (
        "container_cpu_usage_seconds_total",
        "container_memory_rss",
        "container_start_time_seconds",
    ):
        for each in (first, second):
            if family == "container_start_time_seconds" and each not in starts:
                continue
            value = starts[each] if family == "container_start_time_seconds" else 1 if each == DEAD else 2
            labels = f'container="app",id="{each}",image="x",namespace="ten-a-web",pod="shop"'
            text += f"{family}{{{labels}}} {value}{times[each]}\n"
    return text


@pytest.mark.parametrize(("first", "second"), [(DEAD, LIVE), (LIVE, DEAD)])
@pytest.mark.parametrize(
    ("starts", "times"),
    [
        # A predecessor that was read last, just before it was removed: its start is earlier.
        ({DEAD: 100, LIVE: 200}, {DEAD: " 2000", LIVE: " 1000"}),
        ({DEAD: 100, LIVE: 200}, {DEAD: "", LIVE: ""}),
        ({}, {DEAD: " 1000", LIVE: " 2000"}),
    ],
)
def test_of_a_container_and_its_predecessor_the_newest_is_shown(
    first: str, second: str, starts: dict[str, int], times: dict[str, str]
) -> None:
    """All rows are of one of the two: a counter of one beside the memory of the other is neither's."""
    page = twins(first, second, starts=starts, times=times)
    values = {
        each.name: each.value
        for family in text_string_to_metric_families(rebuilt(CADVISOR, page))
        for each in family.samples
        if each.name != "container_start_time_seconds"
    }
    assert values == {"container_cpu_usage_seconds_total": 2, "container_memory_rss": 2}


@pytest.mark.parametrize("container", ["", "app"])
def test_the_runtimes_image_is_never_written(container: str) -> None:
    """It is the node's: of two names of one image the runtime names either, also another tenant's."""
    labels = f'container="{container}",id="/x",image="registry.example/rival:7",name="1"'
    page = f'container_memory_rss{{{labels},namespace="ten-a-web",pod="shop"}} 1\n'
    page += f'container_memory_rss{{{labels},namespace="ten-a-back",pod="db"}} 1\n'
    out = rebuilt(CADVISOR, page)
    assert "rival" not in out
    # The image of `db` is not known: its rows are there without one.
    assert out.count("container_memory_rss{") == 2
    assert out.count('image="registry.example/shop:1"') == (container == "app")
