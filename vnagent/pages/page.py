# SPDX-License-Identifier: Apache-2.0
"""The common form of all pages: parsed once for all tenants, rendered for each."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import msgspec

from daemonkit.kube import deep_json
from tenancy.ownership import OwnerIndex
from vnagent.core.list_splitter import Item
from vnagent.pages.node_cpu import CpuReading, CpuSample

JSON = "application/json"
# The text format that the kubelet answers with where no other is asked for.
PROMETHEUS_TEXT = "text/plain; version=0.0.4; charset=utf-8"

Parsed = TypeVar("Parsed")
Collected = TypeVar("Collected", covariant=True)
Value = TypeVar("Value")


class PageError(ValueError):
    """The kubelet's page is truncated, of another kind, or unreadable.

    The reason quotes nothing of the page. The caller answers 502.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Collector(Protocol[Collected]):
    """Parses a list as `PageKind.parse` does, one item at a time."""

    def add(self, item: Item) -> None:
        """Take the next item. Raises PageError."""

    def finish(self, frame: bytes) -> Collected:
        """The result. `frame` is the list without its items. Raises PageError."""


@dataclass(frozen=True, slots=True)
class View:
    """For whom a page is rendered. The index has to be synced: a caller that has none answers 503, as an
    empty page would be a lie.

    `cpu` is the processor time of the tenant's pods on this node, ended ones included. `has_node_figures`:
    the tenant sees the figures of the node itself, in place of the sums over its own pods.
    """

    index: OwnerIndex
    tenant: str
    cpu: CpuSample | None = None
    has_node_figures: bool = False


@dataclass(frozen=True, slots=True)
class PageKind(Generic[Parsed]):
    """One of the kubelet's pages as a tenant sees it.

    `parse` reads the kubelet's bytes once for all tenants; `render` writes what one tenant may see
    of it, and looks at that tenant's pods only. `read_cpu` is of pages with processor times.
    """

    content_type: str
    parse: Callable[[bytes], Parsed]
    render: Callable[[Parsed, View], bytes]
    # Only for a list whose items are objects that tenants write, and so as large as they like.
    collector: Callable[[], Collector[Parsed]] | None = None
    read_cpu: Callable[[Parsed], CpuReading] | None = None


def decode(decoder: msgspec.json.Decoder[Value], page: msgspec.Raw | bytes) -> Value:
    """The value that `page` holds. Raises PageError.

    The last one of duplicate keys counts. Decision and output use the same value, and the page's own bytes
    are not forwarded.
    """
    try:
        return deep_json.decode(decoder, page)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PageError("not the JSON document that was expected") from error


encode = msgspec.json.Encoder().encode
"""A value as JSON."""


class _List(msgspec.Struct):
    kind: str
    items: list[msgspec.Raw] | None = None


_LIST = msgspec.json.Decoder(_List)


def collect(page: bytes, collector: Collector[Value]) -> Value:
    """What `collector` makes of a list that is here as a whole. Raises PageError."""
    found = decode(_LIST, page)
    for item in found.items or ():
        collector.add(bytes(item))
    return collector.finish(encode({"kind": found.kind}))
