# SPDX-License-Identifier: Apache-2.0
"""Requests by annotations, and what is wrong with others."""

import datetime as dt

import pytest

from tenancy import keys
from tenant_operator.life.requests import Requests, read, text_of, time_of

NOW_S = dt.datetime(2026, 11, 30, 8, 0, tzinfo=dt.UTC).timestamp()


def test_all_requests_are_read() -> None:
    annotations = {
        keys.SLEEP_REQUESTED_AT: "2026-11-30T07:00:00Z",
        keys.WAKE_REQUESTED_AT: "2026-11-30T08:01:00+00:00",
        keys.BACKUP_REQUESTED: "before-upgrade",
        keys.RESTORE_REQUESTED: "acme-20261129",
        keys.CONFIRM_UPGRADE: "v1.34",
        f"{keys.ROTATE_PREFIX}cluster-ca": "2026-11-30T08:00:00Z",
        f"{keys.ROTATE_PREFIX}encryption-key": "Token.1",
        f"{keys.REVOKE_PREFIX}cluster-ca": "2026-11-30T08:00:00Z",
        "other": "value",
    }
    assert read(annotations, NOW_S) == Requests(
        sleep_at_s=NOW_S - 3600,
        wake_at_s=NOW_S + 60,
        backup="before-upgrade",
        restore="acme-20261129",
        confirmed_version="v1.34",
        rotations={"cluster-ca": "2026-11-30T08:00:00Z", "encryption-key": "Token.1"},
        revoked={"cluster-ca": "2026-11-30T08:00:00Z"},
    )


def test_no_annotation_asks_for_nothing() -> None:
    assert read({}, NOW_S) == Requests()
    assert read({keys.SLEEP_REQUESTED_AT: "", keys.BACKUP_REQUESTED: ""}, NOW_S) == Requests()


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        (
            keys.SLEEP_REQUESTED_AT,
            "now",
            "metadata.annotations[vcnode.io/sleep-requested-at]: 'now' is no time; "
            "write the time as 2026-11-30T08:00:00Z",
        ),
        (
            keys.WAKE_REQUESTED_AT,
            "2026-11-30T07:00:00",
            "metadata.annotations[vcnode.io/wake-requested-at]: '2026-11-30T07:00:00' is no time; "
            "write the time as 2026-11-30T08:00:00Z",
        ),
        (
            keys.SLEEP_REQUESTED_AT,
            "2099-01-01T00:00:00Z",
            "metadata.annotations[vcnode.io/sleep-requested-at]: '2099-01-01T00:00:00Z' is in the future; "
            "write the time of the request; plan by spec.sleep.schedules",
        ),
        (
            keys.BACKUP_REQUESTED,
            "../etc",
            "metadata.annotations[vcnode.io/backup-requested]: '../etc' cannot be a name; "
            "use 63 characters at most, of a-z, 0-9, `-` and `.`, with a letter or digit at both ends",
        ),
        (
            keys.RESTORE_REQUESTED,
            "a" * 64,
            f"metadata.annotations[vcnode.io/restore-requested]: {'a' * 60!r} cannot be a name; "
            "use 63 characters at most, of a-z, 0-9, `-` and `.`, with a letter or digit at both ends",
        ),
        (
            f"{keys.ROTATE_PREFIX}cluster-ca",
            "a b",
            "metadata.annotations[vcnode.io/rotate-cluster-ca]: 'a b' cannot be a token; "
            "use 63 characters at most, such as the time of the request",
        ),
        (
            f"{keys.ROTATE_PREFIX}everything",
            "1",
            "metadata.annotations[vcnode.io/rotate-]: 'everything' cannot be rotated; use one of cluster-ca, "
            "front-proxy-ca, etcd-ca, kubelet-client-ca, gateway-ca, service-account-keys, encryption-key, "
            "certificates",
        ),
        (
            f"{keys.REVOKE_PREFIX}encryption-key",
            "1",
            "metadata.annotations[vcnode.io/revoke-]: 'encryption-key' cannot be revoked; use one of "
            "cluster-ca, service-account-keys",
        ),
    ],
)
def test_what_cannot_be_used_is_a_problem(key: str, value: str, problem: str) -> None:
    """And the other requests are read all the same."""
    found = read({key: value, keys.CONFIRM_UPGRADE: "v1.34"}, NOW_S)
    assert [each.text for each in found.problems] == [problem]
    assert found.confirmed_version == "v1.34"
    assert (found.sleep_at_s, found.wake_at_s, found.backup, found.restore) == (None, None, "", "")


def test_many_wrong_annotations_make_few_problems() -> None:
    annotations = {f"{keys.ROTATE_PREFIX}{number}": "x" for number in range(1000)}
    assert len(read(annotations, NOW_S).problems) == 16


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-30T08:00:00Z", NOW_S),
        ("2026-11-30T09:00:00.5+01:00", NOW_S + 0.5),
        ("2026-11-30", None),
        ("", None),
        ("0001-01-01T00:00:00+23:59", None),
        ("2026-11-30T08:00:00Z" + "0" * 1000, None),
        ("\x00", None),
    ],
)
def test_times(text: str, expected: float | None) -> None:
    assert time_of(text) == expected


def test_a_time_is_written_as_it_is_read() -> None:
    assert time_of(text_of(NOW_S)) == NOW_S
