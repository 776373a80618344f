# SPDX-License-Identifier: Apache-2.0
"""Which pod a log request of one connection leads to, remembered while the index is the same.

A client that reads logs reads the same ones again, with the same fields. The cache keeps the decision on the
path. A head whose fields equal the last one's has valid fields; its parameters are parsed each time.
"""

import re
from typing import NamedTuple

from tenancy.ownership import Owned, OwnerIndex
from vnagent.core.head import RequestHead
from vnagent.core.query import QUERY_PATTERN, QueryError, parse_log_options
from vnagent.core.requests import ContainerLogs

# Pods whose logs one connection is remembered to have read.
MAX_ROUTES = 64
# A longer path is not kept: idle connections would hold it.
_MAX_TARGET_BYTES = 4096
_VERSION = b" HTTP/1.1"
_QUERY = re.compile(QUERY_PATTERN.encode())


class LogRoute(NamedTuple):
    request: ContainerLogs
    pod: Owned


class LogRouteCache:
    """The allowed log requests of one connection, by request line."""

    __slots__ = ("_index", "_routes")

    def __init__(self) -> None:
        self._index: OwnerIndex | None = None
        self._routes: dict[bytes, tuple[tuple[str, str, str], Owned]] = {}

    def find(self, head: bytes, previous: RequestHead | None, index: OwnerIndex) -> LogRoute | None:
        """The decision for `head`, if `index` made it before; None if the head has to be parsed."""
        if self._index is not index:
            self._index = index
            self._routes.clear()
            return None
        if not self._routes or previous is None or not previous.has_head_only:
            return None
        line_end = head.find(b"\r\n")
        if head[line_end:] != previous.block or not head.endswith(_VERSION, 0, line_end):
            return None
        line, _, query = head[: line_end - len(_VERSION)].partition(b"?")
        route = self._routes.get(line)
        if route is None:
            return None
        if not _QUERY.fullmatch(query):
            return None
        try:
            options, is_follow = parse_log_options(query.decode("ascii"))
        except QueryError:
            return None
        names, pod = route
        return LogRoute(ContainerLogs(*names, options, is_follow), pod)

    def add(self, head: RequestHead, request: ContainerLogs, pod: Owned) -> None:
        """Remember that `request` may read the log of `pod`, by the index of the last `find`."""
        if len(self._routes) < MAX_ROUTES and len(head.target) <= _MAX_TARGET_BYTES:
            line = b"GET " + head.target.partition("?")[0].encode("ascii")
            self._routes[line] = (request.namespace, request.pod, request.container), pod
