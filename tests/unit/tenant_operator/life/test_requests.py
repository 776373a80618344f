# SPDX-License-Identifier: Apache-2.0
"""Requests by annotations, and what is wrong with others."""

import datetime as dt
import re

import msgspec
import pytest

from tenancy import keys
from tenant_operator.life.requests import Requests, read, text_of, time_of
from tenant_operator.model.virtual_cluster import (
    Meta,
    RotationStatus,
    UpgradeStatus,
    VirtualCluster,
    VirtualClusterStatus,
)
from tests.packages import ROOT

NOW_S = dt.datetime(2026, 11, 30, 8, 0, tzinfo=dt.UTC).timestamp()


UPGRADED = VirtualClusterStatus(upgrade=UpgradeStatus("v1.33", "v1.34"))


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
    assert read(annotations, NOW_S, UPGRADED) == Requests(
        sleep_at_s=NOW_S - 3600,
        wake_at_s=NOW_S + 60,
        backup="before-upgrade",
        restore="acme-20261129",
        confirmed_version="v1.34",
        rotations={"cluster-ca": "2026-11-30T08:00:00Z", "encryption-key": "Token.1"},
        revoked={"cluster-ca": "2026-11-30T08:00:00Z"},
    )


def annotations_that_are_read() -> set[str]:
    """The annotations of VirtualClusters that daemons read, by their names in `tenancy.keys`."""
    files = [*ROOT.glob("tenant_operator/**/*.py"), ROOT / "syncer/sources/virtual_cluster.py"]
    read_one = re.compile(r"(?:cluster\.metadata|meta)\.annotations\.get\(\s*keys\.([A-Z_]+)")
    return {name for path in files for name in read_one.findall(path.read_text())}


def test_what_is_read_is_known() -> None:
    found = annotations_that_are_read()
    assert {"GIVE_UP_DATA", "RELEASE_HELD", "HOLD_DELETIONS"} <= found
    annotations = {getattr(keys, name): "a" for name in found}
    assert [each.message for each in read(annotations, NOW_S).refused] == []


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
            "metadata.annotations[vcnode.io/rotate-everything]: '1' asks for nothing that vc-operator knows; "
            "remove the annotation; behind vcnode.io/rotate- it can be cluster-ca, front-proxy-ca, etcd-ca, "
            "kubelet-client-ca, gateway-ca, service-account-keys, encryption-key, certificates",
        ),
        (
            f"{keys.REVOKE_PREFIX}encryption-key",
            "1",
            "metadata.annotations[vcnode.io/revoke-encryption-key]: '1' asks for nothing that vc-operator "
            "knows; remove the annotation; behind vcnode.io/revoke- it can be cluster-ca, "
            "service-account-keys",
        ),
        (
            f"{keys.REVOKE_PREFIX}cluster-ca",
            "1",
            "metadata.annotations[vcnode.io/revoke-cluster-ca]: '1' is the token of no rotation of "
            "cluster-ca; remove the annotation; once status.rotations has a rotation, use the token of that",
        ),
        (
            "vcnode.io/sleep-request-at",
            "2026-11-30T07:00:00Z",
            "metadata.annotations[vcnode.io/sleep-request-at]: '2026-11-30T07:00:00Z' asks for nothing that "
            "vc-operator knows; remove the annotation; it can be vcnode.io/sleep-requested-at, "
            "vcnode.io/wake-requested-at, vcnode.io/backup-requested, vcnode.io/restore-requested, "
            "vcnode.io/confirm-upgrade",
        ),
    ],
)
def test_what_cannot_be_used_is_a_problem(key: str, value: str, problem: str) -> None:
    """And the other requests are read all the same."""
    found = read({key: value, keys.CONFIRM_UPGRADE: "v1.34"}, NOW_S, UPGRADED)
    assert [(each.annotation, each.message) for each in found.refused] == [(key, problem)]
    assert found.confirmed_version == "v1.34"
    assert (found.sleep_at_s, found.wake_at_s, found.backup, found.restore) == (None, None, "", "")


def test_many_wrong_annotations_make_few_problems() -> None:
    annotations = {f"{keys.ROTATE_PREFIX}{number}": "x" for number in range(1000)}
    assert len(read(annotations, NOW_S).refused) == 16


@pytest.mark.parametrize(
    ("upgrade", "last"),
    [(None, "there was none"), (UpgradeStatus("v1.34", "v1.35", confirmed=True), "the last one is to v1.35")],
)
def test_a_confirmation_is_of_the_upgrade_there_is(upgrade: UpgradeStatus | None, last: str) -> None:
    found = read({keys.CONFIRM_UPGRADE: "v1.36"}, NOW_S, VirtualClusterStatus(upgrade=upgrade))
    assert [each.message for each in found.refused] == [
        f"metadata.annotations[vcnode.io/confirm-upgrade]: 'v1.36' is not what an upgrade leads to: {last}; "
        "remove the annotation, and confirm an upgrade once status.upgrade has it"
    ]


def test_what_the_syncer_and_the_operator_write_is_known() -> None:
    others = (keys.SYNC_WEIGHT, keys.SYNC_POLICY, keys.RELEASE_HELD, keys.HOLD_DELETIONS)
    assert read(dict.fromkeys(others, "1"), NOW_S) == Requests()


LATER = "2026-11-30T09:00:00Z"
REFUSED = {
    keys.SLEEP_REQUESTED_AT: LATER,
    keys.WAKE_REQUESTED_AT: LATER,
    keys.CONFIRM_UPGRADE: "v1.35",
    **{f"{keys.REVOKE_PREFIX}{what}": "token" for what in keys.REVOCABLE},
}
"""Each becomes usable as time goes, or by what others begin."""
WORLD = VirtualClusterStatus(
    upgrade=UpgradeStatus("v1.34", "v1.35"),
    rotations=[RotationStatus(what, "token", "Trusted") for what in keys.ROTATABLE],
)


@pytest.mark.parametrize("key", REFUSED)
def test_a_refused_request_is_not_carried_out_later(key: str) -> None:
    annotations = {key: REFUSED[key]}
    first = read(annotations, NOW_S)
    assert len(first.refused) == 1
    after = msgspec.structs.replace(WORLD, refused_requests=list(first.refused))
    assert read(annotations, NOW_S + 7200, after) == first
    # It would be, but for the status; and it is, once the annotation was taken off.
    assert read(annotations, NOW_S + 7200, WORLD) != first
    gone = read({}, NOW_S + 7200, after)
    assert gone == Requests()
    cleared = msgspec.structs.replace(WORLD, refused_requests=list(gone.refused))
    assert read(annotations, NOW_S + 7200, cleared).refused == ()


@pytest.mark.parametrize("key", REFUSED)
def test_another_value_is_another_request(key: str) -> None:
    status = msgspec.structs.replace(
        WORLD, refused_requests=list(read({key: "x" + REFUSED[key]}, NOW_S).refused)
    )
    found = read({key: REFUSED[key]}, NOW_S + 7200, status)
    assert found.refused == ()
    assert found != Requests()


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


REQUESTS = (
    keys.SLEEP_REQUESTED_AT,
    keys.WAKE_REQUESTED_AT,
    keys.BACKUP_REQUESTED,
    keys.RESTORE_REQUESTED,
    keys.CONFIRM_UPGRADE,
    *(f"{keys.ROTATE_PREFIX}{what}" for what in keys.ROTATABLE),
    *(f"{keys.REVOKE_PREFIX}{what}" for what in keys.REVOCABLE),
)


@pytest.mark.parametrize("key", REQUESTS)
def test_nothing_is_asked_of_a_control_plane_of_others(key: str) -> None:
    text = "v1.35" if key == keys.CONFIRM_UPGRADE else "2026-11-30T07:00:00Z"
    found = read({key: text, keys.SYNC_WEIGHT: "2"}, NOW_S, WORLD, is_imported=True)
    message = (
        f"metadata.annotations[{key}]: '{text}' is of no control plane that others made; remove the "
        "annotation, and use their means"
    )
    assert [each.message for each in found.refused] == [message]
    assert msgspec.structs.replace(found, refused=()) == Requests()


@pytest.mark.parametrize("key", [*REQUESTS, "vcnode.io/unknown"])
@pytest.mark.parametrize("start", ["", "2026-11-30T07:00:00Z", "v1.35", "token"])
@pytest.mark.parametrize("length", [1024, 1025, 200_000])
def test_a_request_that_is_too_long_for_the_cache_is_refused(key: str, start: str, length: int) -> None:
    """The cache of all VirtualClusters keeps no long values: such a request is refused as any other."""
    written = VirtualCluster(Meta(annotations={key: start.ljust(length, "0")}))
    found = read(written.without_foreign_annotations.metadata.annotations, NOW_S, WORLD)
    assert [each.annotation for each in found.refused] == [key]
    assert msgspec.structs.replace(found, refused=()) == Requests()
