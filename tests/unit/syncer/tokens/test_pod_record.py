# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from dataclasses import replace

import pytest
from msgspec import structs

from syncer.core.plan import IssueTokens, TokenRequest
from syncer.tokens.documents import PodTokens
from syncer.tokens.lifetime import TokenLifetime
from syncer.tokens.pod_record import PodRecord, TenantBackoff

ISSUED_S = 1_000.0
SHORT = TokenLifetime("short", "", 600, 600, ISSUED_S)
LONG = TokenLifetime("long", "vault", 3600, 3600, ISSUED_S)
POD = PodTokens("default", "web-0", "u", "builder", "vcs-default", "web-0-token", (SHORT, LONG))
ASKED = IssueTokens(
    "default",
    "web-0",
    "u",
    "builder",
    "web-0-token",
    (TokenRequest("short", "", 600), TokenRequest("long", "vault", 3600)),
)


def _record() -> PodRecord:
    return PodRecord(POD, "s-1")


def _issued(at_s: float) -> PodTokens:
    return replace(POD, tokens=tuple(replace(each, issued_s=at_s) for each in POD.tokens))


@pytest.mark.parametrize(
    ("change", "is_news", "expected"),
    [
        (lambda record: record.leave(), True, PodRecord(POD, "s-1", is_leaving=True)),
        (lambda record: record.stay(), False, _record()),
        (lambda record: record.lose("s-1"), True, PodRecord(POD, "")),
        (lambda record: record.lose("s-2"), False, _record()),
        (lambda record: record.take_over(_issued(2_000.0), "s-2"), True, PodRecord(_issued(2_000.0), "s-2")),
        (lambda record: record.take_over(_issued(ISSUED_S), "s-2"), False, _record()),
        (
            lambda record: record.take_over(replace(_issued(2_000.0), secret_name="other"), "s-2"),
            False,
            _record(),
        ),
        (
            lambda record: record.note_renewed(_issued(2_000.0), "s-1"),
            False,
            PodRecord(_issued(2_000.0), "s-1"),
        ),
    ],
    ids=["leaves", "stays", "lost", "another-lost", "taken-over", "not-newer", "another-name", "renewed"],
)
def test_what_becomes_of_a_record(
    change: Callable[[PodRecord], bool], is_news: bool, expected: PodRecord
) -> None:
    record = _record()
    assert (change(record), record) == (is_news, expected)


def test_a_pod_that_leaves_may_come_back() -> None:
    record = _record()
    record.note_failure(1.0)
    assert (record.leave(), record.leave(), record.failures) == (True, False, 0)
    assert not record.lose("s-1"), "its Secret is deleted by us"
    assert (record.stay(), record.stay()) == (True, False)


def test_what_is_there_is_not_issued_again() -> None:
    record = _record()
    assert record.has(ASKED)
    others = (structs.replace(ASKED, tokens=ASKED.tokens[:1]), structs.replace(ASKED, secret_name="other"))
    assert [record.has(each) for each in others] == [False, False]
    record.lose("s-1")
    assert not record.has(ASKED)


def test_all_tokens_are_due_without_a_secret() -> None:
    record = _record()
    assert record.due() == (SHORT,)
    assert 0.0 < record.renewal_wait_s(ISSUED_S) <= 0.8 * 600
    assert record.renewal_wait_s(ISSUED_S + 10_000) == 0.0
    renewed = replace(SHORT, issued_s=1_500.0)
    assert record.renewed([renewed]).tokens == (renewed, LONG)
    record.lose("s-1")
    assert record.due() == (SHORT, LONG)


def test_a_renewal_that_fails_waits_longer_each_time() -> None:
    record = _record()
    assert [record.note_failure(1.0) for _ in range(5)] == [10.0, 20.0, 40.0, 60.0, 60.0]
    assert record.note_failure(0.0) == 30.0
    assert record.note_renewed(POD, "s-1")
    assert record.note_failure(1.0) == 10.0


def test_a_tenant_that_does_not_answer_is_asked_for_no_pod() -> None:
    backoff = TenantBackoff()
    assert backoff.wait_s("u", 0.0) == 0.0
    assert [backoff.note_failure(100.0, 1.0) for _ in range(3)] == [10.0, 20.0, 40.0]
    assert 40.0 <= backoff.wait_s("u", 100.0) < 50.0
    assert backoff.wait_s("u", 100.0) != backoff.wait_s("another", 100.0)
    assert backoff.wait_s("u", 140.0) == 0.0
    backoff.note_answer()
    assert backoff.note_failure(200.0, 1.0) == 10.0
