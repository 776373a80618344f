# SPDX-License-Identifier: Apache-2.0
"""EndpointSlices as they are cached: with their endpoints packed into bytes. Pure.

A slice may have a thousand endpoints, and a tenant any number of slices, with or without a Service. An
endpoint takes 200 bytes as a Struct and 40 packed. `ServiceState` unpacks the slices of Services that exist.
"""

from collections.abc import Sequence

import msgspec

from kubeproxy_ext.compute.objects import Conditions, EndpointSliceObject, Hint, Hints, SliceEndpoint

_Conditions = tuple[bool | None, bool | None, bool | None]
_Packed = tuple[list[str] | None, _Conditions | None, str | None, list[str] | None, list[str] | None]

_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(list[_Packed])


class PackedSlice(EndpointSliceObject, frozen=True):
    """`packed` has the endpoints. `endpoints` is None, except in saved state of version 1."""

    packed: bytes = b""


def pack(item: EndpointSliceObject) -> PackedSlice:
    """The slice with the first address of each endpoint, the only one that is used."""
    if isinstance(item, PackedSlice) and item.endpoints is None:
        return item
    packed = [_packed(each) for each in item.endpoints or ()]
    return PackedSlice(
        item.metadata, item.address_type, None, item.ports, _ENCODER.encode(packed) if packed else b""
    )


def has_endpoints(item: EndpointSliceObject) -> bool:
    return bool(item.endpoints or (isinstance(item, PackedSlice) and item.packed))


def endpoints_of(item: EndpointSliceObject) -> Sequence[SliceEndpoint]:
    """The endpoints of a slice, packed or not."""
    if isinstance(item, PackedSlice) and item.packed:
        return [_unpacked(each) for each in _DECODER.decode(item.packed)]
    return item.endpoints or ()


def _packed(item: SliceEndpoint) -> _Packed:
    conditions, hints = item.conditions, item.hints
    return (
        None if item.addresses is None else item.addresses[:1],
        None if conditions is None else (conditions.ready, conditions.serving, conditions.terminating),
        item.node_name,
        None if hints is None else _names(hints.for_zones),
        None if hints is None else _names(hints.for_nodes),
    )


def _names(hints: list[Hint] | None) -> list[str] | None:
    return None if hints is None else [hint.name for hint in hints]


def _unpacked(item: _Packed) -> SliceEndpoint:
    addresses, conditions, node_name, zones, nodes = item
    hints = None if zones is None and nodes is None else Hints(_hints(zones), _hints(nodes))
    return SliceEndpoint(addresses, None if conditions is None else Conditions(*conditions), node_name, hints)


def _hints(names: list[str] | None) -> list[Hint] | None:
    return None if names is None else [Hint(name) for name in names]
