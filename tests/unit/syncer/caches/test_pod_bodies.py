# SPDX-License-Identifier: Apache-2.0
import zlib

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from syncer.caches import pod_bodies
from tests.unit.syncer.kinds.pod.pods import pod, super_pod


@given(st.lists(st.binary(max_size=4_000), min_size=1, max_size=3))
@example([b"", b"x" * (4 << 20), b""])
def test_bodies_are_read_as_they_were(bodies: list[bytes]) -> None:
    found = [pod_bodies.compressed(each) for each in bodies]
    assert [pod_bodies.decompressed(each) for each in found] == bodies


def test_a_pod_takes_less_than_alone() -> None:
    for each in (pod(), super_pod(pod())):
        body = msgspec.json.encode(each)
        assert 3 * len(pod_bodies.compressed(body)) < 2 * len(zlib.compress(body, 1))
