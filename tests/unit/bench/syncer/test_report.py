# SPDX-License-Identifier: Apache-2.0
from tests.bench.syncer.parts import SyncerFigures
from tests.bench.syncer.report import mean_of


def test_the_mean_is_of_what_all_runs_have() -> None:
    one = SyncerFigures({"idle cores": 1.0, "hang ratio": 2.0}, {"super POST pods": 1.0}, {"throughput": 5})
    other = SyncerFigures({"idle cores": 2.0}, {"super POST pods": 2.0, "GET": 1.0}, {"throughput": 5})
    assert mean_of([one, other]) == SyncerFigures(
        {"idle cores": 1.5}, {"super POST pods": 1.5}, {"throughput": 5}
    )
    assert mean_of([one]) == one
