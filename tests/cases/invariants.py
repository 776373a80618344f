# SPDX-License-Identifier: Apache-2.0
"""The invariants I1 to I14: each function returns failures, none when its invariant holds."""

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import unquote

from devkit.audit_fields import AUDIT_FIELDS
from devkit.kubelet.replies import Exchange
from tests.cases.case_file import RequestCase, path_of
from tests.cases.environment import AgentEnvironment
from tests.cases.fixtures import foreign_word
from tests.cases.parallel_client import ParallelClient
from tests.cases.record import Record
from tests.cases.replies import ReceivedReply, parse_reply
from tests.waiting import holds_within
from vnagent.core.kubelet_request import PAGE_PATHS

PARALLEL_LIMIT_S = 1.0
_MEMORY_LIMIT_KIB = 8 * 1024
# A reason or status that occurs for the first time may add series; an input may not.
_SERIES_SLACK = 24
_SETTLE_S = 2.0
_IDENTITY_HEADERS = re.compile(
    r"authorization|impersonate-.*|x-remote-.*|x-forwarded-.*|forwarded|proxy-.*", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Baseline:
    """The agent before a case."""

    resident_kib: int
    sockets: int
    tasks: int
    series: int
    audit_bytes: int


def take_baseline(environment: AgentEnvironment) -> Baseline:
    """Raises DaemonError."""
    daemon = environment.daemon
    size = environment.audit_file.stat().st_size if environment.audit_file.exists() else 0
    return Baseline(daemon.resident_kib(), daemon.open_sockets(), daemon.tasks(), len(daemon.samples()), size)


@dataclass(slots=True)
class CaseEvidence:
    """What the invariants read."""

    environment: AgentEnvironment
    case: RequestCase
    record: Record
    before: Baseline
    parallel_client: ParallelClient
    repeat_request: Callable[[str], bytes]

    @property
    def tenant(self) -> str | None:
        return self.environment.fixtures.tenant_of(self.case.identity)

    def audit_lines(self) -> list[str]:
        """The lines that the case added to the audit log; those of parallel requests are left out."""
        if not self.environment.audit_file.exists():
            return []
        with self.environment.audit_file.open("rb") as file:
            file.seek(self.before.audit_bytes)
            # What follows the last newline is a line that is being written.
            lines = file.read().rpartition(b"\n")[0].decode("utf-8", "replace").splitlines()
        if self.tenant == "ten-b":
            return lines
        return [line for line in lines if '"ten-b"' not in line or '"bank"' not in line]


def check(name: str, evidence: CaseEvidence) -> list[str]:
    """The failures of invariant `name`; empty when it holds."""
    return [f"{name}: {failure}" for failure in _CHECKS[name](evidence)]


def _i1(evidence: CaseEvidence) -> list[str]:
    fixtures, case = evidence.environment.fixtures, evidence.case
    failures = []
    readers = [(evidence.tenant, s.request, s.received) for s in evidence.record.seen]
    readers += [
        (fixtures.tenant_of(other.identity), other.request.encode(), other.received)
        for other in evidence.record.others
    ]
    secrets = [
        evidence.environment.agent_leaf.key_pem.decode().splitlines()[1],
        "system:vn-agent",
        "PRIVATE KEY",
    ]
    for tenant, request, received in readers:
        text = received.decode("utf-8", "replace")
        # The client knows the words of its own request, decoded or not.
        sent = request.decode("utf-8", "replace")
        own = [*fixtures.own_words(tenant), *re.findall(r"[\w.-]+", f"{sent} {unquote(sent)}")]
        word = foreign_word(text, fixtures.foreign_words(tenant), own)
        if word is not None:
            failures.append(f"{word!r} reached {tenant or case.identity}: {text[:200]!r}")
        failures += [f"{secret[:16]!r} reached the client" for secret in secrets if secret in text]
    return failures[:3]


def _i2(evidence: CaseEvidence) -> list[str]:
    failures = []
    for exchange in evidence.record.exchanges:
        if exchange.is_malformed:
            failures.append(f"the kubelet received a malformed request: {exchange.head[:80]!r}")
        elif not _is_built_path(evidence, exchange):
            failures.append(f"the agent builds no such path: {exchange.method} {exchange.target}")
    return failures[:3]


def _is_built_path(evidence: CaseEvidence, exchange: Exchange) -> bool:
    path = exchange.path
    if path in PAGE_PATHS.values():
        return exchange.method in ("GET", "HEAD")
    segments = path.split("/")
    if len(segments) < 4 or segments[1] not in ("containerLogs", "exec", "attach", "portForward"):
        return False
    callers = {
        evidence.tenant,
        *(evidence.environment.fixtures.tenant_of(o.identity) for o in evidence.record.others),
    }
    owner = evidence.environment.fixtures.owner_of(segments[2], segments[3])
    is_plain = all(re.fullmatch(r"[a-z0-9.-]+", segment) for segment in segments[2:])
    return is_plain and owner is not None and owner in callers


def _i3(evidence: CaseEvidence) -> list[str]:
    environment, parallel_client = evidence.environment, evidence.parallel_client
    if environment.is_trust_empty:
        return []  # it serves no tenant, or refused to start
    failures = []
    if not environment.daemon.is_running:
        failures.append(
            f"the agent has ended with {environment.daemon.exit_code}: {environment.daemon.log_tail(500)}"
        )
    # A case that takes the kubelet away, or gives it a bad certificate, does so for ten-b too.
    kubelet_is_good = not {"cert", "down"} & set(evidence.case.upstream or {})
    if any(isinstance(step.get("admin"), str) and "kubelet" in step["admin"] for step in _admin(evidence)):
        kubelet_is_good = False
    for took_s, status, detail in parallel_client.results:
        if took_s > PARALLEL_LIMIT_S:
            failures.append(f"a parallel request of ten-b took {took_s:.2f} s")
        if status != 200 and (kubelet_is_good or status is None):
            failures.append(f"a parallel request of ten-b got {status}: {detail!r}")
    if not parallel_client.results:
        failures.append("no parallel request was made")
    return failures[:3]


def _admin(evidence: CaseEvidence) -> list[Any]:
    return [*evidence.case.before, *evidence.case.then]


def _i4(evidence: CaseEvidence) -> list[str]:
    """A foreign pod, a missing pod and a missing namespace get the same reply."""
    path = path_of(evidence.case.text)
    segments = path.split("/")
    if len(segments) < 4:
        return ["the request names no pod"]
    first = evidence.record.seen[0]
    expected = _normalised(first.received)
    failures = []
    for index, name in ((3, "nosuchpod"), (2, "nosuchnamespace")):
        changed = [*segments[:index], name, *segments[index + 1 :]]
        text = evidence.case.text.replace(path, "/".join(changed), 1)
        other = evidence.repeat_request(text)
        if _normalised(other) != expected:
            failures.append(f"{path} gives {first.received[:400]!r}, {'/'.join(changed)} {other[:400]!r}")
    return failures


def _normalised(received: bytes) -> bytes:
    """Without Date and the request id, wherever that id occurs."""
    reply = parse_reply(received, "GET", is_ended=True)
    if reply is not None:
        for value in (*reply.values("X-Request-Id"), *reply.values("Audit-Id"), *reply.values("Date")):
            received = received.replace(value.encode("latin-1"), b"-")
    return re.sub(rb'("requestId":\s*)"[^"]*"', rb'\1"-"', received)


def _has_ended(exchange: Exchange) -> bool:
    return exchange.ended_s is not None


def _i5(evidence: CaseEvidence) -> list[str]:
    failures = []
    upgrades = [e for e in evidence.record.exchanges if e.is_upgrade or e.status == 101]
    for exchange in upgrades or evidence.record.exchanges:
        if exchange.after.count:
            after = bytes(exchange.after.head[:80])
            failures.append(f"{exchange.after.count} bytes followed the upgrade upstream: {after!r}")
        if not holds_within(partial(_has_ended, exchange), _SETTLE_S):
            failures.append("the upstream connection of the failed upgrade is open")
    return failures


def _i6(evidence: CaseEvidence) -> list[str]:
    return [
        f"the kubelet received {name}"
        for exchange in evidence.record.exchanges
        for name, _ in exchange.headers
        if _IDENTITY_HEADERS.fullmatch(name)
    ]


def _i7(evidence: CaseEvidence) -> list[str]:
    failures = []
    for exchange in evidence.record.exchanges:
        hosts, lengths = exchange.values("Host"), exchange.values("Content-Length")
        if len(hosts) != 1:
            failures.append(f"{len(hosts)} Host lines upstream")
        if len(lengths) > 1:
            failures.append(f"{len(lengths)} Content-Length lines upstream")
        if exchange.values("Transfer-Encoding"):
            failures.append("Transfer-Encoding upstream")
    return failures


def _i8(evidence: CaseEvidence) -> list[str]:
    peak = max(evidence.parallel_client.peak_kib, evidence.environment.daemon.resident_kib())
    growth = peak - evidence.before.resident_kib
    return [f"memory grew by {growth} KiB"] if growth >= _MEMORY_LIMIT_KIB else []


def _i9(evidence: CaseEvidence) -> list[str]:
    growth = len(evidence.environment.daemon.samples()) - evidence.before.series
    return [f"{growth} new metric series"] if growth > _SERIES_SLACK else []


def _i10(evidence: CaseEvidence) -> list[str]:
    if not holds_within(lambda: bool(evidence.audit_lines()), _SETTLE_S):
        return ["no audit line"]
    failures = []
    fixtures = evidence.environment.fixtures
    raw = fixtures.identities.raw(evidence.case.identity)
    issuers = {t.key for t in fixtures.tenants.values() if t.authority == raw.get("ca")}
    for line in evidence.audit_lines():
        if any(ord(character) < 32 or ord(character) == 127 for character in line):
            failures.append(f"control characters in {line!r}")
        entry = json.loads(line)
        failures += [f"{key} in the audit line" for key in set(entry).difference(AUDIT_FIELDS)]
        values = [str(value) for value in entry.values()]
        if any(ord(character) < 32 or ord(character) == 127 for value in values for character in value):
            failures.append(f"control characters in a value of {line!r}")
        failures += [f"no {key} in {line}" for key in ("decision", "reason") if not entry.get(key)]
        if evidence.tenant is not None and entry.get("tenant") != evidence.tenant:
            failures.append(f"tenant {entry.get('tenant')!r}, not {evidence.tenant!r}")
        elif evidence.tenant is None and not (entry.get("tenant") or entry.get("identity")):
            failures.append(f"neither tenant ({issuers}) nor identity in {line}")
        query = evidence.case.text.split(" ")[1].partition("?")[2] if " " in evidence.case.text else ""
        failures += [
            f"{value!r} of the query in the audit line"
            for value in re.findall(r"=([^&\s]{4,})", query)
            if value in line
        ]
    return failures[:4]


def _i11(evidence: CaseEvidence) -> list[str]:
    failures = []
    closed_s = evidence.record.seen[0].closed_s
    for exchange in evidence.record.exchanges:
        holds_within(lambda exchange=exchange: exchange.ended_s is not None, _SETTLE_S)  # type: ignore[misc] # a default binds the loop's variable
        if exchange.ended_s is None:
            failures.append("the upstream connection is open")
        elif closed_s is not None and exchange.ended_s - closed_s > 1.0:
            failures.append(f"upstream closed {exchange.ended_s - closed_s:.2f} s after the client")
    return failures


def _i12(evidence: CaseEvidence) -> list[str]:
    daemon, before = evidence.environment.daemon, evidence.before
    begin = time.monotonic()
    sockets = tasks = -1

    def returned_to_baseline() -> bool:
        nonlocal sockets, tasks
        sockets, tasks = daemon.open_sockets(), daemon.tasks()
        return sockets <= before.sockets and tasks <= before.tasks

    if holds_within(returned_to_baseline, _SETTLE_S):
        return []
    waited_s = time.monotonic() - begin
    return [
        f"after {waited_s:.1f} s {sockets} sockets and {tasks} tasks, "
        f"before {before.sockets} and {before.tasks}"
    ]


def _i13(evidence: CaseEvidence) -> list[str]:
    record = evidence.record
    tunnels = [exchange for exchange in record.exchanges if exchange.status == 101]
    if not tunnels or record.tunnel_sent is None or record.tunnel_received is None:
        status = record.seen[0].reply.status if record.seen and record.seen[0].reply else None
        # A case may accept a refusal, which has no tunnel.
        return ["no tunnel was made"] if status == 101 else []
    exchange = tunnels[0]
    holds_within(partial(_has_ended, exchange), _SETTLE_S)
    failures = []
    up = (exchange.after.count, exchange.after.sha256)
    if up != record.tunnel_sent:
        failures.append(f"the client sent {record.tunnel_sent}, the kubelet received {up}")
    down = (exchange.sent.count, exchange.sent.sha256)
    if down != record.tunnel_received:
        failures.append(f"the kubelet sent {down}, the client received {record.tunnel_received}")
    return failures


def _i14(evidence: CaseEvidence) -> list[str]:
    failures = []
    fixtures, tenant = evidence.environment.fixtures, evidence.tenant
    own = [pod for pod in fixtures.all_pods if pod.tenant == tenant and tenant is not None]
    allowed = {word for pod in own for word in pod.tenant_words()}
    for seen in evidence.record.seen:
        if seen.reply is None or seen.reply.status != 200:
            continue
        text = seen.reply.body.decode("utf-8", "replace")
        word = foreign_word(text, fixtures.foreign_words(tenant) | fixtures.super_words(), allowed)
        if word is not None:
            failures.append(f"{word!r} in the page")
        if not seen.reply.is_complete:
            failures.append(f"the page is cut after {len(seen.reply.body)} bytes")
            continue
        failures += _page_rows(seen.reply, text, own)
    return failures[:4]


def _page_rows(reply: ReceivedReply, text: str, own: list[Any]) -> list[str]:
    """Namespaces, pods and uids anywhere in the page."""
    names = {pod.name for pod in own}
    namespaces = {pod.namespace for pod in own}
    uids = {pod.uid for pod in own}
    found: dict[str, set[str]] = {"namespace": set(), "pod": set(), "uid": set()}
    if "json" in "".join(reply.values("Content-Type")):
        _collect(json.loads(text), found)
    else:
        for key, pattern in (("namespace", "namespace"), ("pod", "pod"), ("uid", "pod_uid")):
            found[key] = set(re.findall(rf'[{{,]{pattern}="((?:[^"\\]|\\.)*)"', text))
    return [
        f"{key} {value!r} in the page"
        for key, allowed in (("namespace", namespaces), ("pod", names), ("uid", uids))
        for value in found[key] - allowed
    ]


def _collect(value: Any, found: dict[str, set[str]]) -> None:
    if isinstance(value, list):
        for item in value:
            _collect(item, found)
    elif isinstance(value, dict):
        for key, item in value.items():
            if key in ("namespace", "uid") and isinstance(item, str):
                found[key].add(item)
            elif key in ("metadata", "podRef") and isinstance(item, dict) and "name" in item:
                found["pod"].add(item["name"])
            _collect(item, found)


_CHECKS: dict[str, Callable[[CaseEvidence], list[str]]] = {
    "I1": _i1,
    "I2": _i2,
    "I3": _i3,
    "I4": _i4,
    "I5": _i5,
    "I6": _i6,
    "I7": _i7,
    "I8": _i8,
    "I9": _i9,
    "I10": _i10,
    "I11": _i11,
    "I12": _i12,
    "I13": _i13,
    "I14": _i14,
}
