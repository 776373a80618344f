# SPDX-License-Identifier: Apache-2.0
"""From results to rows, with their bounds."""

from collections.abc import Callable, Mapping, Sequence

from tests.bench.bounded import BoundedRow, Figure, Rounds, p50, p99, row, value
from tests.bench.services.changing import ChangeSlice
from tests.bench.services.large import Cost
from tests.bench.services.parts import ALL, ALONE, CHURN, GUESTS, SERVICES, OfKind, Results
from tests.bench.usage import MemoryUsage

KUBE_PROXY, NO_MINIMUM, BY_RULE = "kube-proxy", "min sync 0", "process a rule"
PEERS = (KUBE_PROXY, NO_MINIMUM, BY_RULE)
_NAMES = {"kube-proxy": KUBE_PROXY, "no minimum": NO_MINIMUM}


def tables(results: Results) -> list[tuple[str, list[BoundedRow]]]:
    """A heading and its rows for each kind of guest, then the rows of large clusters."""
    made = [(_TITLES[found.kind.value], _of_kind(found)) for found in results.by_kind]
    rest = [*_memory(results), *_scale(results)]
    if rest:
        made.append(("large clusters", rest))
    return [(title, rows) for title, rows in made if rows]


_TITLES = {
    "nft": "guests with nft (the agent's choice where it can), kube-proxy in nftables mode",
    "legacy": "guests with legacy iptables, kube-proxy in iptables mode on the same",
    "iptables-nft": "guests with iptables-nft, kube-proxy in iptables mode on the same",
}


def _of_kind(found: OfKind) -> list[BoundedRow]:
    return [*_fresh(found), *_changes(found), *_drift(found), *_processes(found)]


def _fresh(found: OfKind) -> list[BoundedRow]:
    if not found.fresh:
        return []
    one = [[each.live_ms for each in found.fresh]]
    rule_one = {BY_RULE: [[each * 1e3 for each in found.rule_one_s]]}
    rule_all = {BY_RULE: [[each * 1e3 for each in found.rule_all_s]]}
    theirs = {KUBE_PROXY: [found.kube_proxy_start_s]}
    label = f"the same into {GUESTS} guests at once"
    return [
        row(Figure("100 Services x 2 into a fresh guest", "p50 ms", 30), one, rule_one),
        row(Figure("", "p99 ms", 100), one, rule_one, p99),
        row(Figure(label, "wall ms", 300), [[each.wall_ms for each in found.at_once]], rule_all),
        row(Figure("  since Services are synced", "wall ms"), [[each.synced_ms for each in found.at_once]]),
        row(Figure("", "renders", 1), [[float(each.renders) for each in found.at_once]]),
        row(Figure("daemon's start to rules live", "s"), [[each.start_s for each in found.at_once]], theirs),
        value(Figure("processes a guest", "count"), 0, {BY_RULE: float(found.rule_processes)}),
    ]


def _changes(found: OfKind) -> list[BoundedRow]:
    slices = found.changes.slices
    rows: list[BoundedRow] = []
    if ALONE in slices:
        rows += [
            _timed("endpoint change, one guest", "p50 ms", 20, slices[ALONE], _last),
            _timed("  from before the write", "p50 ms", None, slices[ALONE], _from_before),
        ]
    if ALL in slices:
        rows += [
            _timed(f"the same, all of {GUESTS}", "p50 ms", 60, slices[ALL], _last),
            _timed("", "p99 ms", None, slices[ALL], _last, p99),
            _timed("  from before the write", "p50 ms", None, slices[ALL], _from_before),
            _timed(f"  any of the {GUESTS}", "p50 ms", None, slices[ALL], _each),
            *_cpu(slices[ALL]),
        ]
    if CHURN in slices:
        rows += [
            _timed(f"under churn, any of {GUESTS}", "p50 ms", 100, slices[CHURN], _each),
            _timed("", "p99 ms", 500, slices[CHURN], _each, p99),
            _timed(f"under churn, all of {GUESTS}", "p50 ms", 100, slices[CHURN], _last),
            _timed("", "p99 ms", 500, slices[CHURN], _last, p99),
        ]
    return rows


def _cpu(slices: Mapping[str, list[ChangeSlice]]) -> list[BoundedRow]:
    peers = {_NAMES[who]: _rounds(made, _cpu_of("proxy")) for who, made in slices.items() if who != "ours"}
    ours = slices["ours"]
    return [
        row(Figure("CPU a change: kubeproxy-ext", "ms"), _rounds(ours, _cpu_of("proxy")), peers),
        row(Figure("  with kata-bridge", "ms"), _rounds(ours, _cpu_of("proxy", "bridge")), peers),
        row(Figure("  one guest's agent", "ms"), _rounds(ours, _agents_cpu)),
    ]


def _drift(found: OfKind) -> list[BoundedRow]:
    size = found.size
    if size is None:
        return []
    rows = [
        row(Figure(f"drift check of {GUESTS} guests, fingerprints", "ms", 20), [found.drift_ms]),
        row(Figure("", "p99 ms"), [found.drift_ms], {}, p99),
        row(Figure(f"all rules of {GUESTS} guests", "ms"), [found.dump_ms], {BY_RULE: [found.scan_ms]}),
    ]
    is_iptables = found.kube_proxy_rules > 0
    if is_iptables:
        theirs = {KUBE_PROXY: float(found.kube_proxy_rules)}
        rows.append(value(Figure("rules for 100 x 2 (nat)", "count", 300), size.rules, theirs))
    bytes_ = {KUBE_PROXY: found.kube_proxy_bytes / 1e3}
    rows += [
        value(Figure("ruleset for 100 x 2", "KB"), size.text_bytes / 1e3, bytes_),
        value(Figure("  as it is sent, deflated", "KB", 5), size.message_bytes / 1e3),
        value(Figure("  delta, an endpoint comes or goes", "bytes", 500), float(max(found.delta_bytes))),
    ]
    return rows


def _processes(found: OfKind) -> list[BoundedRow]:
    rows = []
    if found.fresh:
        attach = [[each.attach_ms / 1e3 for each in found.fresh]]
        rows.append(row(Figure("guest agent: start to attached", "s", 0.3), attach))
    if found.memory:
        kube_proxy = {KUBE_PROXY: [_values(found.memory["kube-proxy"], _rss)]}
        rows += [
            row(Figure("guest agent", "MB RSS"), [_values(found.memory["agent"], _rss)]),
            row(Figure(f"  {GUESTS} on one machine", "MB PSS"), [_values(found.memory["agent"], _pss)]),
            row(Figure("  of its own", "MB anon"), [_values(found.memory["agent"], _anonymous)]),
            row(Figure(f"kata-bridge, {GUESTS} guests", "MB RSS"), [_values(found.memory["bridge"], _rss)]),
            row(Figure("kubeproxy-ext", "MB RSS"), [_values(found.memory["proxy"], _rss)], kube_proxy),
        ]
    return rows


def _memory(results: Results) -> list[BoundedRow]:
    if not results.memory:
        return []
    ours, theirs = results.memory["ours"], results.memory["kube-proxy"]
    rows = [
        _cost("kubeproxy-ext, 1 000 Services x 5", "MB RSS", 60, ours, theirs, lambda c: c.memory.rss_mb),
        _cost("", "MB PSS", None, ours, theirs, lambda c: c.memory.pss_mb),
        _cost("", "MB anon", None, ours, theirs, lambda c: c.memory.anonymous_mb),
        _cost("  right after the start", "MB RSS", None, ours, theirs, lambda c: c.started.rss_mb),
        _cost("  CPU to start", "s", None, ours, theirs, lambda c: c.start_cpu_s),
        _cost("  CPU a change", "ms", None, ours, theirs, _here),
        _cost(f"  a change live, {GUESTS} guests", "p50 ms", None, ours, theirs, _live),
    ]
    if results.bridge is not None:
        rows.append(value(Figure(f"kata-bridge then, {GUESTS} guests", "MB RSS"), results.bridge.rss_mb))
    return rows


def _scale(results: Results) -> list[BoundedRow]:
    """Ours among many beside ours alone; the peer's column is kube-proxy among many."""
    if not results.many:
        return []
    many, few, theirs = results.many["ours"], results.few["ours"], results.many["kube-proxy"]
    alone = results.few["kube-proxy"]
    services = f"{results.tenants * SERVICES:,}".replace(",", " ")
    title = f"{services} Services in {results.tenants} tenants, 5 here"
    rows = [value(Figure(title, "tenants"), float(results.tenants))]
    for label, unit, take in _SCALE:
        rows += [
            _cost(f"  {label}", unit, None, many, theirs, take),
            _cost("    those 5 alone", unit, None, few, alone, take),
            value(
                Figure("    ratio", "", 1.1 if unit == "MB RSS" else 1.25),
                take(many) / take(few),
                {KUBE_PROXY: take(theirs) / take(alone)},
            ),
        ]
    if many.elsewhere_cpu_ms is not None:
        peers = {KUBE_PROXY: theirs.elsewhere_cpu_ms or 0.0}
        rows.append(value(Figure("  CPU a change elsewhere", "ms"), many.elsewhere_cpu_ms, peers))
    return rows


def _here(cost: Cost) -> float:
    assert cost.here is not None
    return cost.here.cpu_ms_each("proxy")


def _live(cost: Cost) -> float:
    assert cost.here is not None
    return p50([change.last_ms for change in cost.here.changes])


_SCALE: Sequence[tuple[str, str, Callable[[Cost], float]]] = (
    ("memory", "MB RSS", lambda cost: cost.memory.rss_mb),
    ("CPU to start", "s", lambda cost: cost.start_cpu_s),
    ("CPU a change here", "ms", _here),
)


def _cost(
    label: str,
    unit: str,
    at_most: float | None,
    ours: Cost,
    theirs: Cost,
    take: Callable[[Cost], float],
) -> BoundedRow:
    return value(Figure(label, unit, at_most), take(ours), {KUBE_PROXY: take(theirs)})


def _timed(
    label: str,
    unit: str,
    at_most: float | None,
    slices: Mapping[str, list[ChangeSlice]],
    take: Callable[[ChangeSlice], list[float]],
    statistic: Callable[[Sequence[float]], float] = p50,
) -> BoundedRow:
    peers = {_NAMES[who]: _rounds(made, take) for who, made in slices.items() if who != "ours"}
    return row(Figure(label, unit, at_most), _rounds(slices["ours"], take), peers, statistic)


def _rounds(slices: Sequence[ChangeSlice], take: Callable[[ChangeSlice], list[float]]) -> Rounds:
    return [take(each) for each in slices]


def _last(made: ChangeSlice) -> list[float]:
    return [change.last_ms for change in made.changes]


def _from_before(made: ChangeSlice) -> list[float]:
    return [change.from_before_ms for change in made.changes]


def _each(made: ChangeSlice) -> list[float]:
    return [each for change in made.changes for each in change.each_ms]


def _cpu_of(*parts: str) -> Callable[[ChangeSlice], list[float]]:
    return lambda made: [made.cpu_ms_each(*parts)]


def _agents_cpu(made: ChangeSlice) -> list[float]:
    return [made.cpu_ms_each("agents") / GUESTS]


def _values(memories: Sequence[MemoryUsage], take: Callable[[MemoryUsage], float]) -> list[float]:
    return [take(memory) for memory in memories]


def _rss(memory: MemoryUsage) -> float:
    return memory.rss_mb


def _pss(memory: MemoryUsage) -> float:
    return memory.pss_mb


def _anonymous(memory: MemoryUsage) -> float:
    return memory.anonymous_mb
