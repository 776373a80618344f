# SPDX-License-Identifier: Apache-2.0
"""Compares a case's record with its expectations: values in, failures out."""

from urllib.parse import parse_qs

from devkit.kubelet.replies import Exchange
from tests.cases.case_file import Expect, RequestCase
from tests.cases.record import CaseExchange, Record


def check_expectations(case: RequestCase, expect: Expect, record: Record) -> list[str]:
    """Each deviation of the record from `expect`, as a sentence."""
    failures = list(record.errors)
    for seen in record.seen:
        failures += _check_exchange(expect, seen)
        if len(failures) > 5:
            failures.append("...")
            break
    failures += _check_other_requests(record)
    failures += _check_upstream(expect, record)
    failures += _check_words(case, record)
    return failures


def _check_exchange(expect: Expect, seen: CaseExchange) -> list[str]:
    if expect.tls == "fail":
        return [] if seen.is_refused else [f"TLS should fail; seen: {_short(seen)}"]
    if seen.is_refused:
        return [f"TLS should work; refused: {seen.detail}"]
    if seen.reply is None:
        return [f"no reply: {seen.detail} {seen.received[:120]!r}"] if expect.status else []
    failures = []
    if seen.detail.startswith("not HTTP"):
        failures.append(seen.detail)
    if expect.status and seen.reply.status not in expect.status:
        expected = " or ".join(map(str, expect.status))
        failures.append(f"status {seen.reply.status}, not {expected}: {_short(seen)}")
    for name, values in expect.headers.items():
        if seen.reply.values(name) != list(values):
            failures.append(f"reply header {name} is {seen.reply.values(name)}, not {values}")
    if expect.after == "close" and seen.is_open_after:
        failures.append("the connection should be closed after the reply, and is open")
    if expect.after == "open" and seen.is_open_after is False:
        failures.append("the connection should stay open after the reply, and is closed")
    return failures


def _short(seen: CaseExchange) -> str:
    text = seen.received[:300] if seen.received else seen.detail.encode()
    return repr(text.decode("latin-1"))


def _check_other_requests(record: Record) -> list[str]:
    return [
        f"step as {other.identity}: status {other.status}, not {other.expected}: {other.received[:200]!r}"
        for other in record.others
        if other.expected and other.status not in other.expected
    ]


def _check_upstream(expect: Expect, record: Record) -> list[str]:
    exchanges = record.exchanges
    failures = []
    targets = [f"{e.method} {e.target}"[:120] for e in exchanges]
    if expect.upstream_max is not None:
        if len(exchanges) > expect.upstream_max:
            failures.append(f"the kubelet saw {len(exchanges)} requests, more than {expect.upstream_max}")
    elif expect.upstream is not None:
        if len(exchanges) != expect.upstream:
            failures.append(f"the kubelet saw {len(exchanges)} requests, not {expect.upstream}: {targets}")
    elif len(exchanges) > 1:
        failures.append(f"the kubelet saw {len(exchanges)} requests, not 0 or 1: {targets}")
    if expect.path is not None and exchanges and exchanges[0].target != expect.path:
        failures.append(f"the kubelet saw {exchanges[0].target}, not {expect.path}")
    for exchange in exchanges:
        failures += _check_upstream_request(expect, exchange)
    return failures


def _check_upstream_request(expect: Expect, exchange: Exchange) -> list[str]:
    failures = [
        f"the kubelet saw {name}: {exchange.values(name)}, not {list(values)}"
        for name, values in expect.upstream_headers.items()
        if exchange.values(name) != list(values)
    ]
    if expect.decoded_query is not None:
        query = parse_qs(exchange.target.partition("?")[2], keep_blank_values=True)
        if query != {key: list(values) for key, values in expect.decoded_query.items()}:
            failures.append(f"the kubelet read the query as {query}, not {expect.decoded_query}")
    return failures


def _check_words(case: RequestCase, record: Record) -> list[str]:
    received = b"\n".join(seen.received for seen in record.seen)
    everything = b"\n".join([received, *(other.received for other in record.others)])
    heads = b"\n".join(e.head + e.body + bytes(e.after.head) for e in record.exchanges)
    paths = "\n".join(e.target for e in record.exchanges)
    return [
        *_absent(case.words["must_contain"], _text(received), "the client did not receive"),
        *_present(case.words["must_not_contain"], _text(everything), "the client received"),
        *_present(case.words["path_must_not_contain"], paths, "the path at the kubelet has"),
        *_absent(case.words["upstream_must_contain"], _text(heads), "the kubelet did not receive"),
        *_present(case.words["upstream_must_not_contain"], _text(heads), "the kubelet received"),
    ]


def check_audit_words(case: RequestCase, lines: str) -> list[str]:
    """The words that audit lines must and must not have, as far as the case names any."""
    return [
        *_absent(case.words["audit_must_contain"], lines, "the audit log lacks"),
        *_present(case.words["audit_must_not_contain"], lines, "the audit log has"),
    ]


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _present(words: tuple[str, ...], text: str, what: str) -> list[str]:
    folded = text.casefold()
    return [f"{what} {word!r}" for word in words if word.casefold() in folded]


def _absent(words: tuple[str, ...], text: str, what: str) -> list[str]:
    folded = text.casefold()
    return [f"{what} {word!r}" for word in words if word.casefold() not in folded]
