# SPDX-License-Identifier: Apache-2.0
"""The table of a tenant's latencies beside abusers."""

from tests.bench.attacked import AttackedSlice, Latencies, NeighbourLatency
from tests.bench.neighbours.__main__ import DIRECT, NeighbourResult, table


def latencies(*p99_ms: float) -> list[Latencies]:
    """One slice for each figure; a tenth of it at the kubelet itself."""
    return [{"log": NeighbourLatency(0.5, p99), DIRECT: NeighbourLatency(0.1, p99 / 10)} for p99 in p99_ms]


def test_a_ratio_is_to_the_slices_around() -> None:
    """The median of the ratios, and their quartiles: the goal lies within them where there is doubt."""
    beside = [AttackedSlice(each, "", 0.5, 40.0, {"reads": 1}) for each in latencies(1.5, 2.0, 8.0)]
    result = NeighbourResult("pages", latencies(1.0, 1.0, 3.0, 5.0), beside)
    assert result.ratios("log", "p99_ms") == [1.5, 1.0, 2.0]
    assert table([result]).splitlines() == [
        "abuser  request      p50 ms  beside  ratio  p99 ms  beside  ratio  quartiles  <= 1.3  CPU  RSS MB",
        "-------------------------------------------------------------------------------------------------",
        "pages   log             0.5     0.5   1.00       2       2   1.50  1.25-1.75  ABOVE?  50%      40",
        "        no vn-agent     0.1     0.1   1.00     0.2     0.2   1.50  1.25-1.75",
    ]


def test_a_slice_without_an_answer_has_no_ratio() -> None:
    """The other slices keep theirs."""
    served = AttackedSlice(latencies(1.0)[0], "", 0.5, 40.0, {})
    result = NeighbourResult(
        "pages", latencies(1.0, 1.0, 1.0), [AttackedSlice({}, "reset", 0.5, 40.0, {}), served]
    )
    assert (result.ratios("log", "p99_ms"), result.problems) == ([1.0], ["reset"])
    none = NeighbourResult("pages", latencies(1.0, 1.0), [AttackedSlice({}, "reset", 0.5, 40.0, {})])
    assert table([none]).splitlines()[2].split() == [
        "pages",
        "log",
        "0.5",
        "none",
        "1",
        "none",
        "ABOVE",
        "50%",
        "40",
    ]
