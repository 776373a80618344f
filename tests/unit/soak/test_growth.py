# SPDX-License-Identifier: Apache-2.0
"""What counts as growth of a daemon: memory, descriptors, threads."""

from collections.abc import Callable

from tests.soak.growth import Growth, Trend, UsageSample, growth, growth_problems, not_judged


def series(
    value: Callable[[int], tuple[float, int, int]], count: int, *, every_s: float = 1.0, pid: int = 7
) -> list[UsageSample]:
    return [UsageSample(i * every_s, "vn-agent", pid, *value(i), is_quiet=True) for i in range(count)]


def problems(samples: list[UsageSample]) -> list[str]:
    grown = growth("vn-agent", samples)
    assert grown is not None
    return growth_problems(grown)


def test_a_flat_daemon_is_flat() -> None:
    samples = series(lambda i: (20.0 + (i % 5) * 0.2, 30 + i % 4, 2), 4000)
    assert problems(samples) == []


def test_figures_are_of_the_second_and_the_last_quarter() -> None:
    samples = series(lambda i: (20.0 + i, 30 + i, 2), 16)
    rising = Trend(3600.0, 1.0)
    assert growth("vn-agent", samples) == Growth(
        "vn-agent", 11.0, 12, (25.5, 33.5), (35.5, 43.5), (2, 2), pss_trend=rising, descriptor_trend=rising
    )


def test_a_warm_up_is_no_growth() -> None:
    assert problems(series(lambda i: (20.0 + min(i, 25), 30 + min(i, 25), 2), 100)) == []


def test_memory_that_grows_is_found() -> None:
    found = problems(series(lambda i: (20.0 + i * 0.2, 30, 2), 100))
    assert found == ["the memory of vn-agent grew from 27.4 to 37.4 MB"]


def test_steady_growth_within_the_tolerance_is_found() -> None:
    """An hour of it would be 28.8 MB; in these 15 minutes the medians stay within the tolerance."""
    found = problems(series(lambda i: (20.0 + i * 0.008 + (i % 3) * 0.05, 30, 2), 900))
    assert found == ["the memory of vn-agent grows steadily, by 29 MB an hour"]


def test_a_short_run_says_nothing_of_steady_growth() -> None:
    assert problems(series(lambda i: (20.0 + i * 0.008, 30, 2), 300)) == []


def test_a_descriptor_each_five_minutes_is_found() -> None:
    """Twelve in an hour, among the connections that come and go. The medians stay within the tolerance."""
    found = problems(series(lambda i: (20.0, 30 + i // 300 + i % 2, 2), 3600))
    assert found == ["the number of descriptors of vn-agent grows steadily, by 12 an hour"]


def test_descriptors_and_threads_that_grow_are_found() -> None:
    found = problems(series(lambda i: (20.0, 30 + i, 2 + i // 10), 100))
    assert found == [
        "the descriptors of vn-agent grew from 67 to 117",
        "the threads of vn-agent grew from 5 to 10",
    ]


def test_the_longest_life_of_a_process_is_judged() -> None:
    """A process that was killed began anew, and took its leak with it."""
    short = series(lambda i: (20.0, 30 + i * 9, 2), 20, pid=1)
    assert problems([*short, *series(lambda _: (20.0, 30, 2), 100, pid=2)]) == []


def test_times_of_faults_and_other_daemons_do_not_count() -> None:
    loud = [UsageSample(each, "vn-agent", 7, 90.0, 900, 9, is_quiet=False) for each in range(100)]
    other = [UsageSample(each, "vc-syncer", 8, 90.0, 900, 9, is_quiet=True) for each in range(100)]
    assert growth("vn-agent", [*loud, *other]) is None
    assert problems([*loud, *other, *series(lambda _: (20.0, 30, 2), 100)]) == []


def test_what_few_samples_cannot_judge_is_reported() -> None:
    """Their growth is no problem of the daemon either."""

    def seen(count: int, every_s: float = 1.0) -> tuple[list[str], str]:
        grown = growth("vn-agent", series(lambda i: (20.0 + i, 30 + i, 2), count, every_s=every_s))
        return [] if grown is None else growth_problems(grown), not_judged("vn-agent", grown)

    growth_not_judged = "vn-agent: growth was not judged: "
    steady_not_judged = "vn-agent: steady growth was not judged: "
    assert seen(3) == ([], f"{growth_not_judged}no process has lived for four samples")
    assert seen(24) == (
        [],
        f"{growth_not_judged}18 samples over 17 s of one process, and it takes 20 over 30 s",
    )
    assert seen(200)[1] == (
        f"{steady_not_judged}150 samples over 149 s of one process, and it takes 100 over 600 s"
    )
    assert seen(100, every_s=9.0)[1] == (
        f"{steady_not_judged}75 samples over 666 s of one process, and it takes 100 over 600 s"
    )
    assert seen(900)[1] == ""
