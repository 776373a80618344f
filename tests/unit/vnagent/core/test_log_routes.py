# SPDX-License-Identifier: Apache-2.0
"""The log-route cache allows only requests that the full decision allowed, by the same index and fields."""

import pytest

from tenancy.ownership import Owned, OwnerIndex
from vnagent.core.head import HeadError, parse_request_head
from vnagent.core.log_routes import MAX_ROUTES, LogRoute, LogRouteCache
from vnagent.core.requests import ContainerLogs, parse

SHOP = Owned("ten-a", "web", "shop", "t-1", "ten-a-web", "shop", "s-1", frozenset({"app"}))
INDEX = OwnerIndex([SHOP])
FIELDS = b"\r\nHost: node-1\r\nUser-Agent: kube-apiserver"
PREVIOUS = parse_request_head(b"GET /healthz HTTP/1.1" + FIELDS)


def head(target: str = "/containerLogs/web/shop/app", fields: bytes = FIELDS) -> bytes:
    return b"GET " + target.encode() + b" HTTP/1.1" + fields


def filled(index: OwnerIndex = INDEX) -> LogRouteCache:
    """A cache that remembers the log of SHOP."""
    cache = LogRouteCache()
    assert cache.find(head(), PREVIOUS, index) is None
    parsed = parse_request_head(head())
    request = parse(parsed)
    assert isinstance(request, ContainerLogs)
    cache.add(parsed, request, SHOP)
    return cache


def test_a_known_path_is_found_with_its_own_parameters() -> None:
    found = filled().find(head("/containerLogs/web/shop/app?tailLines=3&follow=true"), PREVIOUS, INDEX)
    options = (("tailLines", "3"), ("follow", "true"))
    assert found == LogRoute(ContainerLogs("web", "shop", "app", options, is_follow=True), SHOP)


@pytest.mark.parametrize(
    "other",
    [
        head("/containerLogs/web/shop/other"),
        head("/containerLogs/web/shop/app?tailLines=x"),
        head("/containerLogs/web/shop/app?tailLines=\xff"),
        head(fields=FIELDS + b"\r\nContent-Length: 3"),
        head().replace(b"HTTP/1.1", b"HTTP/1.0"),
        head().replace(b"GET", b"HEAD"),
        head().replace(b"\r\n", b" \r\n", 1),
    ],
)
def test_any_other_head_is_parsed_in_full(other: bytes) -> None:
    assert filled().find(other, PREVIOUS, INDEX) is None


@pytest.mark.parametrize("code", range(256))
def test_a_query_has_the_characters_of_a_target(code: int) -> None:
    """Each byte in a query: found are the requests that a connection without routes has, too."""
    first = head("/containerLogs/web/shop/app?x@").replace(b"@", bytes([code]))
    found = filled().find(first, PREVIOUS, INDEX)
    try:
        parsed = parse(parse_request_head(first))
    except HeadError:
        parsed = None
    assert (found and found.request) == (parsed if isinstance(parsed, ContainerLogs) else None)


def test_a_first_head_is_parsed_in_full() -> None:
    assert filled().find(head(), None, INDEX) is None


def test_fields_with_an_upgrade_are_parsed_in_full() -> None:
    fields = FIELDS + b"\r\nUpgrade: SPDY/3.1"
    previous = parse_request_head(b"GET /healthz HTTP/1.1" + fields)
    assert filled().find(head(fields=fields), previous, INDEX) is None


def test_another_index_forgets_all_routes() -> None:
    cache, later = filled(), OwnerIndex([])
    assert cache.find(head(), PREVIOUS, later) is None
    assert cache.find(head(), PREVIOUS, later) is None
    assert cache.find(head(), PREVIOUS, INDEX) is None


def test_routes_are_bounded() -> None:
    cache = LogRouteCache()
    assert cache.find(head(), PREVIOUS, INDEX) is None
    for number in range(MAX_ROUTES + 1):
        parsed = parse_request_head(head(f"/containerLogs/web/shop-{number}/app"))
        cache.add(parsed, ContainerLogs("web", f"shop-{number}", "app", (), is_follow=False), SHOP)
    found = [
        cache.find(head(f"/containerLogs/web/shop-{number}/app"), PREVIOUS, INDEX) is not None
        for number in range(MAX_ROUTES + 1)
    ]
    assert found == [True] * MAX_ROUTES + [False]


def test_long_targets_are_not_kept() -> None:
    cache = filled()
    target = "/containerLogs/web/shop/app2?sinceTime=" + "0" * 4096
    parsed = parse_request_head(head(target))
    cache.add(parsed, ContainerLogs("web", "shop", "app2", (), is_follow=False), SHOP)
    assert cache.find(head("/containerLogs/web/shop/app2"), PREVIOUS, INDEX) is None
