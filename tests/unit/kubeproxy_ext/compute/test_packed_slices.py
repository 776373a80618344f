# SPDX-License-Identifier: Apache-2.0
import msgspec
from hypothesis import given
from hypothesis import strategies as st

from kubeproxy_ext.compute.objects import Conditions, EndpointSliceObject, Hint, Hints, Meta, SliceEndpoint
from kubeproxy_ext.compute.packed_slices import PackedSlice, endpoints_of, has_endpoints, pack
from kubeproxy_ext.compute.parse import parse_slice

_MAYBE = st.none() | st.booleans()
_HINTS = st.none() | st.lists(st.sampled_from(["a", "b"]).map(Hint), max_size=2)
_ENDPOINTS = st.builds(
    SliceEndpoint,
    addresses=st.none() | st.lists(st.sampled_from(["10.0.0.1", "10.0.0.2", "odd"]), max_size=2),
    conditions=st.none() | st.builds(Conditions, _MAYBE, _MAYBE, _MAYBE),
    node_name=st.none() | st.sampled_from(["n1", ""]),
    hints=st.none() | st.builds(Hints, _HINTS, _HINTS),
)
_SLICES = st.builds(
    EndpointSliceObject,
    metadata=st.just(Meta("s-1", "a", labels={"kubernetes.io/service-name": "s"})),
    address_type=st.just("IPv4"),
    endpoints=st.none() | st.lists(_ENDPOINTS, max_size=4),
)


@given(_SLICES)
def test_packed_slice_parses_as_before(item: EndpointSliceObject) -> None:
    packed = pack(item)
    assert packed.endpoints is None
    assert pack(packed) is packed
    assert parse_slice(packed) == parse_slice(item)
    assert has_endpoints(packed) == has_endpoints(item)
    # On disk, and as older versions wrote it.
    assert msgspec.json.decode(msgspec.json.encode(packed), type=PackedSlice) == packed
    older = msgspec.json.decode(msgspec.json.encode(item), type=PackedSlice)
    assert parse_slice(older) == parse_slice(item)
    assert pack(older) == packed


def test_unpacked_endpoints_are_read_too() -> None:
    item = EndpointSliceObject(endpoints=[SliceEndpoint(["10.0.0.1"])])
    assert endpoints_of(item) == item.endpoints
    assert (endpoints_of(EndpointSliceObject()), endpoints_of(PackedSlice())) == ((), ())


def test_packed_endpoints_are_small() -> None:
    ready = Conditions(ready=True, serving=True, terminating=False)
    ends = [
        SliceEndpoint([f"10.0.{number >> 8}.{number & 255}"], ready, f"node-{number % 50}")
        for number in range(1_000)
    ]
    assert len(pack(EndpointSliceObject(endpoints=ends)).packed) < 40_000
