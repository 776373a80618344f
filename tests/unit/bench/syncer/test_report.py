# SPDX-License-Identifier: Apache-2.0
from tests.bench.syncer.parts import SyncerFigures
from tests.bench.syncer.report import PEER, mean_of, tables_of_turns


def test_the_mean_is_of_what_all_runs_have() -> None:
    one = SyncerFigures({"idle cores": 1.0, "hang ratio": 2.0}, {"super POST pods": 1.0}, {"throughput": 5})
    other = SyncerFigures({"idle cores": 2.0}, {"super POST pods": 2.0, "GET": 1.0}, {"throughput": 5})
    assert mean_of([one, other]) == SyncerFigures(
        {"idle cores": 1.5}, {"super POST pods": 1.5}, {"throughput": 5}
    )
    assert mean_of([one]) == one


def test_a_ratio_of_turns_is_the_median_of_the_rounds() -> None:
    """The machine was slow in the second round, for both."""
    pods = {"restart": 9, "throughput": 3}
    ours, peer = (
        [
            SyncerFigures(
                {"restart through": s, "throughput cpu": s, "throughput super cpu": 2 * s}, {}, pods
            )
            for s in seconds
        ]
        for seconds in ([1.0, 8.0, 1.5], [2.0, 10.0, 2.0])
    )
    (restart, (through, *_)), (_, (cpu, part, *_)) = tables_of_turns(ours, peer)
    assert restart == "restart with 9 pods, 3 rounds in turn"
    assert through.peers[PEER].ratio == 0.75
    assert (cpu.peers[PEER].value, cpu.peers[PEER].ratio) == (2.0, 0.75)
    assert (part.ours, part.peers[PEER].ratio) == (0.5, 1.0)
