# SPDX-License-Identifier: Apache-2.0
import msgspec
import pytest

from daemonkit.kube.resources import (
    NAMESPACES,
    PODS,
    VIRTUAL_CLUSTERS,
    ObjectMeta,
    Page,
    Resource,
    Status,
    is_older,
    is_ordered,
)


@pytest.mark.parametrize(
    ("resource", "namespace", "name", "path"),
    [
        (PODS, None, None, "/api/v1/pods"),
        (PODS, "a", None, "/api/v1/namespaces/a/pods"),
        (PODS, "a", "p", "/api/v1/namespaces/a/pods/p"),
        (NAMESPACES, None, "a", "/api/v1/namespaces/a"),
        (VIRTUAL_CLUSTERS, "a", "v", "/apis/tenancy.x-k8s.io/v1alpha1/namespaces/a/virtualclusters/v"),
    ],
)
def test_paths_of_resources(resource: Resource, namespace: str | None, name: str | None, path: str) -> None:
    assert resource.path(namespace, name) == path


@pytest.mark.parametrize(
    ("version", "than", "expected"),
    [
        ("9", "10", True),
        ("10", "9", False),
        ("10", "10", False),
        ("0", "1", True),
        ("99999999999999999999", "100000000000000000000", True),
        ("5", "", False),
        ("", "5", False),
        ("abc", "5", False),
        ("5", "abc", False),
        ("05", "6", False),
        ("-1", "5", False),
        ("\u0661", "5", False),
        ("1" * 10_000, "2" * 10_000, True),
    ],
)
def test_older_versions_are_recognised(version: str, than: str, expected: bool) -> None:
    assert is_older(version, than) is expected


@pytest.mark.parametrize(("version", "expected"), [("0", True), ("12", True), ("012", False), ("1e3", False)])
def test_only_numeric_versions_are_ordered(version: str, expected: bool) -> None:
    assert is_ordered(version) is expected


def test_unknown_metadata_is_ignored() -> None:
    body = b'{"name": "p", "resourceVersion": "7", "managedFields": [{"x": 1}], "deletionTimestamp": "now"}'
    metadata = msgspec.json.decode(body, type=ObjectMeta)
    assert metadata == ObjectMeta(name="p", resource_version="7", deletion_timestamp="now")


@pytest.mark.parametrize("items", [b"null", b"[]"])
def test_empty_lists_decode_from_null_and_array(items: bytes) -> None:
    page = msgspec.json.decode(
        b'{"metadata": {"resourceVersion": "1", "continue": "t"}, "items": %s}' % items, type=Page
    )
    assert not page.items
    assert page.metadata.continue_ == "t"


def test_a_too_large_version_is_recognised_in_a_status() -> None:
    body = b'{"code": 504, "details": {"causes": [{"reason": "ResourceVersionTooLarge"}]}}'
    assert msgspec.json.decode(body, type=Status).is_version_too_large
    assert not Status(code=504).is_version_too_large


@pytest.mark.parametrize(
    ("asked", "expected"),
    [("7", 7.0), ("0", 0.0), ("-5", 0.0), ("9" * 400, 86_400.0), ("-" + "9" * 400, 0.0)],
    ids=["seconds", "none", "negative", "no-float", "negative-no-float"],
)
def test_a_status_asks_to_wait_within_bounds(asked: str, expected: float) -> None:
    """JSON's integers have no end; what is made of one must not raise where answers are read."""
    body = f'{{"code": 503, "details": {{"retryAfterSeconds": {asked}}}}}'
    assert msgspec.json.decode(body, type=Status).retry_after_s == expected


def test_a_status_without_details_asks_for_no_wait() -> None:
    assert Status(code=503).retry_after_s == 0.0
