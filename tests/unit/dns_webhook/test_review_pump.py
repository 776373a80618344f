# SPDX-License-Identifier: Apache-2.0
"""The work of a review grows as its pod does, with each list, map and text of the pod."""

from collections.abc import Callable

from dns_webhook import review
from tests.pump import Sizes, peak_bytes, steps, superlinear
from tests.unit.dns_webhook.test_review import CLUSTER, NODE, new, review_of
from tests.unit.dnsconfig.resolve.test_decision_pump import POD, with_owners

_PLACES = POD.places()


def _work(sizes: Sizes) -> Callable[[], object]:
    pod = with_owners(POD.object(sizes, text=str))
    pod["metadata"]["annotations"]["tenancy.x-k8s.io/cluster"] = "t"
    body = review_of(new(pod))

    def work() -> bytes:
        return review.decide_review(review.decode_review(body), CLUSTER, NODE).body()

    return work


def test_work_grows_as_the_pod_does() -> None:
    assert superlinear(lambda sizes: steps(_work(sizes)), _PLACES) == []


def test_memory_grows_as_the_pod_does() -> None:
    _work({})()
    one, two, four = (peak_bytes(_work(dict.fromkeys(_PLACES, size))) for size in (10, 20, 40))
    assert four - two < 3 * (two - one)
