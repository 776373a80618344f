# SPDX-License-Identifier: Apache-2.0
"""What CI makes of a ring's first run, of its second one, and of all rings."""

from typing import Any

from tests.rings.results import MOST_RERUN, Flaky, RingResult, of_command, report, result, to_rerun
from tests.rings.skips import AllowedSkip, is_allowed


def record(**changes: Any) -> dict[str, Any]:
    return {"passed": 3, "outputs": {}, "failed": {}, "skipped": {}, "unlisted": [], "slowest": [], **changes}


def test_failed_tests_run_once_more() -> None:
    assert to_rerun(record(failed={"a": "", "b": ""})) == ("a", "b")


def test_many_failures_are_no_flakiness() -> None:
    assert to_rerun(record(failed={str(number): "" for number in range(MOST_RERUN + 1)})) == ()


def test_a_skip_that_fails_the_run_is_not_tried_again() -> None:
    assert to_rerun(record(failed={"a": ""}, unlisted=["b"])) == ()


def test_passed_the_second_time_is_flaky_with_both_logs() -> None:
    made = result("lab", 9.0, record(failed={"a": "first"}), record(outputs={"a": "second"}))
    assert made == RingResult("lab", 9.0, 4, (), (Flaky("a", "first", "second"),))


def test_failed_twice_is_failed() -> None:
    made = result("lab", 9.0, record(failed={"a": "first"}), record(failed={"a": "second"}))
    assert made == RingResult("lab", 9.0, 3, ("a",), log="a\nfirst")


def test_not_run_the_second_time_is_failed() -> None:
    """A test whose second run was skipped, or ended before it, has not passed."""
    assert result("lab", 9.0, record(failed={"a": "first"}), record()).failed == ("a",)
    assert result("lab", 9.0, record(failed={"a": "first"}), None).failed == ("a",)


def test_passed_and_then_failed_in_its_teardown_is_failed() -> None:
    second = record(outputs={"a": "call"}, failed={"a": "teardown"})
    assert result("lab", 9.0, record(failed={"a": "first"}), second).failed == ("a",)


def test_commands_are_counted_by_their_closing_line() -> None:
    assert of_command("cases", 1.0, 0, "ok\n366 passed, 0 failed\n") == RingResult("cases", 1.0, 366)
    assert of_command("cases", 1.0, 1, "3 passed, 2 failed\n").failed == ("cases 1", "cases 2")
    assert of_command("mypy", 1.0, 1, "error: no\n").failed == ("mypy 1",)
    assert of_command("mypy", 1.0, 0, "Success\n") == RingResult("mypy", 1.0)


def test_a_case_that_passes_the_second_time_is_flaky() -> None:
    output = (
        "FAIL logs-1 (1.2 s)\n       took 1.2 s\n"
        "FLAKY logs 1: a: failed, and passed when it ran again. It failed with:\n"
        "       took 1.2 s\n       \n       more\n467 passed, 0 failed\n"
    )
    flaky = Flaky("logs 1: a", "       took 1.2 s\n       \n       more\n", "passed")
    assert of_command("compiled", 1.0, 0, output) == RingResult("compiled", 1.0, 467, (), (flaky,))


def test_the_report_has_the_log_of_what_failed() -> None:
    command = of_command(
        "compiled", 1.0, 1, "FAIL logs-1 (1.2 s)\n       404, not 200\n466 passed, 1 failed\n"
    )
    text, is_well = report([command], [])
    assert not is_well
    assert "FAIL logs-1 (1.2 s)\n       404, not 200\n" in text
    assert text.endswith("\nFAILED compiled 1 (compiled)\n466 passed, 1 failed")


def test_a_long_log_hides_no_other_one() -> None:
    made = result("lab", 9.0, record(failed={"a": "cause of a", "b": "b" * 100_000}))
    text, _ = report([made], [])
    assert "cause of a" in text
    assert len(text) < 20_000


def test_the_report_ends_with_the_count_of_all() -> None:
    text, is_well = report([RingResult("unit", 2.0, 10), RingResult("lab", 3.0, 5)], ["unit", "lab"])
    assert (text.splitlines()[-1], is_well) == ("15 passed, 0 failed", True)


def test_a_ring_without_a_result_fails_the_report() -> None:
    text, is_well = report([RingResult("unit", 2.0, 10)], ["unit", "lab"])
    assert text.splitlines()[-2:] == ["NOT RUN: lab", "10 passed, 1 failed"]
    assert not is_well


def test_flaky_tests_fail_nothing_and_show_both_logs() -> None:
    flaky = RingResult("lab", 3.0, 5, flaky=(Flaky("tests/lab/a.py::test", "too slow", "fast enough"),))
    text, is_well = report([flaky], ["lab"])
    assert is_well
    lines = text.splitlines()
    begin = lines.index(
        "FLAKY tests/lab/a.py::test: failed, and passed when it ran again. Its cause is to be found."
    )
    assert lines[begin + 1 : begin + 5] == [
        "--- its first log ---",
        "too slow",
        "--- its second log ---",
        "fast enough",
    ]
    assert lines[-2:] == ["FLAKY: 1 tests, with both logs above", "5 passed, 0 failed"]


def test_skips_are_allowed_by_test_and_reason() -> None:
    listed = (AllowedSkip(r"test_vsock\.py", "loop back", "no vsock_loopback in this kernel"),)
    assert is_allowed("tests/lab/test_vsock.py::test_a", "cannot loop back", listed)
    assert not is_allowed("tests/lab/test_vsock.py::test_a", "needs root", listed)
    assert not is_allowed("tests/lab/test_other.py::test_a", "cannot loop back", listed)
