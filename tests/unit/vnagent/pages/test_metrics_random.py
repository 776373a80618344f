# SPDX-License-Identifier: Apache-2.0
"""Random pages, against a model that reads no text: the tenant's rows alone, each of them, translated."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from tenancy.ownership import Owned, OwnerIndex
from tests.rebuilt_pages import tenants_page
from vnagent.pages.metrics import CADVISOR, PROBES

TENANTS = ("a", "a-b", "b")
NAMESPACES = ("b", "b-c", "c")
# Each join of two is a join of two others: tenant `a` + `b-c`, tenant `a-b` + `c`.
PODS = [
    Owned(
        tenant,
        namespace,
        "pod",
        f"t-{tenant}-{namespace}",
        f"{tenant}--{namespace}",
        "pod",
        uid,
        own,
        images=(("app", f"{tenant}:1"),) if namespace == "c" else (),
    )
    for (tenant, namespace), uid, own in zip(
        product(TENANTS, NAMESPACES),
        (f"00000000-0000-4000-8000-00000000000{number}" for number in range(9)),
        (frozenset({"app"}),) * 9,
        strict=True,
    )
]
INDEX = OwnerIndex(PODS)
# Values that are the text of other labels, of a row's end and of another row.
EVIL = [
    'x",namespace="a--b",pod="pod',
    '"} 1\ncontainer_threads{namespace="a--b",pod="pod"} 7\n',
    "\\",
    '\\",namespace=\\"b--b',
    "}",
    "{",
    "# EOF",
    "\u2028",
    "",
]
FAMILIES = ("container_threads", "container_fs_reads_total", "machine_secret", "prober_probe_total")
KEPT = {"container", "device", "interface"}


@dataclass(frozen=True)
class PageRow:
    """A row as data: `labels` in the order in which they are written."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: int
    at_ms: int | None
    exemplar: str | None

    def text(self, *, is_openmetrics: bool, gap: str) -> str:
        inner = ",".join(f'{name}="{_escaped(value)}"' for name, value in self.labels)
        block = f"{{{inner}}}" if self.labels else ""
        at, exemplar = "", ""
        if self.at_ms is not None:
            at = f" {self.at_ms // 1000}.{self.at_ms % 1000:03d}" if is_openmetrics else f" {self.at_ms}"
        if is_openmetrics and self.exemplar is not None:
            exemplar = f' # {{trace="{_escaped(self.exemplar)}"}} 1 2.5'
        return f"{self.name}{'' if is_openmetrics else gap}{block} {self.value}{at}{exemplar}\n"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


@st.composite
def rows(draw: st.DrawFn) -> PageRow:
    evil = st.sampled_from(EVIL) | st.text(st.characters(codec="utf-8"), max_size=12)
    labels: dict[str, str] = {}
    for name, chance in (("image", 2), ("device", 2), ("interface", 3), ("trace", 3)):
        if not draw(st.integers(0, chance)):
            labels[name] = draw(evil)
    if draw(st.integers(0, 9)):  # a row of the node has neither
        owner = draw(st.sampled_from([*PODS, *PODS, None]))
        labels["namespace"] = (
            owner.super_namespace if owner else draw(st.sampled_from(["kube-system", *EVIL]))
        )
        labels["pod"] = owner.super_name if owner else draw(st.sampled_from(["pod", "other", *EVIL]))
    if draw(st.booleans()):
        labels["container"] = draw(st.sampled_from(["app", "mesh", *EVIL]))
    return PageRow(
        draw(st.sampled_from(FAMILIES)),
        tuple(draw(st.permutations(list(labels.items())))),
        draw(st.integers(0, 10**9)),
        draw(st.none() | st.integers(1, 2 * 10**12)),
        draw(st.none() | evil),
    )


Shown = tuple[str, frozenset[tuple[str, str]], float, int | None]


def of_tenant(page: Iterable[PageRow], tenant: str) -> set[Shown]:
    """What the tenant may see; of rows that would be one series, the latest, and else the first."""
    found: dict[tuple[str, frozenset[tuple[str, str]]], Shown] = {}
    mine = {(pod.super_namespace, pod.super_name): pod for pod in INDEX.pods_of(tenant)}
    for row in page:
        labels = dict(row.labels)
        pod = mine.get((labels.get("namespace", ""), labels.get("pod", "")))
        is_cadvisors = row.name.startswith("container_")
        if pod is None or not is_cadvisors or labels.get("container", "") not in {"", "app"}:
            continue
        kept = {name: value for name, value in labels.items() if name in KEPT}
        if labels.get("container"):
            kept |= dict.fromkeys(["image"] * len(pod.images), f"{pod.tenant}:1")
        shown = frozenset({**kept, "namespace": pod.namespace, "pod": pod.name}.items())
        held = found.get((row.name, shown))
        if held is None or (row.at_ms or 0) > (held[3] or 0):
            found[row.name, shown] = (row.name, shown, float(row.value), row.at_ms)
    return set(found.values())


def parsed(text: str) -> list[Shown]:
    samples = [each for family in text_string_to_metric_families(text) for each in family.samples]
    return [
        (
            each.name,
            frozenset(each.labels.items()),
            each.value,
            None if each.timestamp is None else round(float(each.timestamp) * 1000),
        )
        for each in samples
    ]


@settings(max_examples=150)
@given(st.lists(rows(), min_size=1, max_size=20), st.booleans(), st.sampled_from(["", " ", "\t"]))
def test_each_tenant_gets_its_rows(page: list[PageRow], is_openmetrics: bool, gap: str) -> None:
    text = "".join(row.text(is_openmetrics=is_openmetrics, gap=gap) for row in page)
    raw = (text + ("# EOF\n" if is_openmetrics else "")).encode()
    for tenant in (*TENANTS, "other"):
        found = parsed(tenants_page(CADVISOR, raw, INDEX, tenant).decode())
        assert len(found) == len(set(found))
        assert set(found) == of_tenant(page, tenant)


def test_a_family_with_many_rows() -> None:
    pods = [
        Owned(
            f"ten-{n % 100}",
            "web",
            f"p-{n}",
            f"t-{n}",
            f"ten-{n % 100}-web",
            f"p-{n}",
            f"s-{n}",
            frozenset("c"),
        )
        for n in range(20_000)
    ]
    index = OwnerIndex(pods)
    page = "".join(
        f'prober_probe_total{{container="c",namespace="{pod.super_namespace}",pod="{pod.super_name}",'
        f'pod_uid="{pod.super_uid}",probe_type="Liveness",result="successful"}} {number}\n'
        for number, pod in enumerate(pods)
    ).encode()
    for tenant in ("ten-0", "ten-99"):
        wanted = [
            f'prober_probe_total{{container="c",namespace="web",pod="{pod.name}",pod_uid="{pod.uid}",'
            f'probe_type="Liveness",result="successful"}} {number}'
            for number, pod in enumerate(pods)
            if pod.tenant == tenant
        ]
        assert tenants_page(PROBES, page, index, tenant).decode().splitlines() == wanted
