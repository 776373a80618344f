# SPDX-License-Identifier: Apache-2.0
"""Figures from a log of libFuzzer."""

from tests.fuzz.fuzzer_log import FuzzFigures, figures

BEGIN = """\
INFO: seed corpus: files: 46 min: 1b max: 277b total: 914b rss: 44Mb
#47\tINITED cov: 62 ft: 382 corp: 41/541b exec/s: 0 rss: 44Mb
"""
NEW = "#51\tNEW    cov: 62 ft: 383 corp: 42/560b lim: 4096 exec/s: 0 rss: 44Mb L: 19/120 MS: 1 Custom-\n"
DONE = "#458023\tDONE   cov: 62 ft: 417 corp: 64/870b lim: 4096 exec/s: 762 rss: 46Mb\n"


def test_only_new_inputs_are_counted() -> None:
    assert figures(f"{BEGIN}{NEW}{DONE}\nDone 458023 runs in 601 second(s)\n") == FuzzFigures(457976, 62, 417)


def test_a_run_that_only_replays_has_executed_nothing() -> None:
    """It does not pass: `_run` wants executions."""
    assert figures(f"{BEGIN}{DONE.replace('458023', '47')}").executions == 0


def test_a_run_without_an_end_has_no_figures() -> None:
    assert figures(f"{BEGIN}{NEW}") == figures(DONE) == figures("") == FuzzFigures()
