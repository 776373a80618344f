# SPDX-License-Identifier: Apache-2.0
"""The order of a soak's faults."""

from tests.soak.schedule import cycle

NAMES = ("kill", "murder", "disk", "clock", "kubelet")
ENDING = frozenset({"kill", "murder"})


def test_each_fault_comes_once_in_the_first_cycle() -> None:
    assert sorted(cycle(NAMES, ENDING, 1, 0, 0.0)) == sorted(NAMES)


def test_processes_end_first_and_then_live() -> None:
    assert set(cycle(NAMES, ENDING, 1, 0, 0.0)[:2]) == ENDING
    assert not ENDING & set(cycle(NAMES, ENDING, 1, 5, 0.5))


def test_processes_end_again_near_the_end() -> None:
    assert sorted(cycle(NAMES, ENDING, 1, 9, 0.9)) == sorted(NAMES)


def test_a_seed_repeats_its_order_and_others_differ() -> None:
    orders = {seed: [cycle(NAMES, ENDING, seed, number, 0.1) for number in range(4)] for seed in range(4)}
    assert orders[1] == [cycle(NAMES, ENDING, 1, number, 0.1) for number in range(4)]
    assert len({str(order) for order in orders.values()}) == 4
