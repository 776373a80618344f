# SPDX-License-Identifier: Apache-2.0
"""`make cases` prints the cases that it skipped, and fails for them with --require-all."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tests.cases import __main__ as program
from tests.cases.__main__ import main
from tests.cases.services import runner as service_runner
from tests.cases.services.runner import NamedCase, ServiceCaseResult

CHAIN_NAMES = {"chain_names": [{"input": "ns1/svc1:p80/tcp", "hash": "ABCDEFGHIJKLMNOP"}]}
NOTHING = ["--only", "^no case has this id$"]


def _file(path: Path) -> str:
    path.write_text(yaml.safe_dump({"probabilities": {2: "0.5000000000"}}), encoding="utf-8")
    return str(path)


def test_missing_shared_files_are_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(NOTHING, shared=tmp_path / "absent")
    lines = capsys.readouterr().out.splitlines()
    for name in ("vnagent-requests.yaml", "service-proxy.yaml"):
        assert f"NOT FOUND: {tmp_path / 'absent' / name}: none of its cases were run" in lines


def test_missing_shared_files_fail_with_require_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All cases that ran pass. The run still fails, once for each file."""
    own = Path(_file(tmp_path / "own.yaml"))
    monkeypatch.setattr(program, "default_files", lambda shared: (shared / "one.yaml", own))
    assert main(["--failed-only"], shared=tmp_path / "absent") == 0
    assert capsys.readouterr().out.splitlines()[-1] == "1 passed, 0 failed"
    assert main(["--failed-only", "--require-all"], shared=tmp_path / "absent") == 1
    assert capsys.readouterr().out.splitlines()[-1] == "1 passed, 1 failed"


def test_cases_that_only_leaves_out_fail_with_require_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "two.yaml"
    path.write_text(yaml.safe_dump({"probabilities": {2: "0.5000000000"}, **CHAIN_NAMES}), encoding="utf-8")
    assert main([str(path), "--only", "probabilities", "--require-all"]) == 1
    output = capsys.readouterr().out.splitlines()
    assert output[-2:] == ["LEFT OUT: 1 cases by --only 'probabilities'", "1 passed, 1 failed"]


def test_a_missing_packet_filter_fails_with_require_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = "LEFT OUT: nft, because there is no nft here"
    monkeypatch.setattr(service_runner, "_usable", lambda: ((), [missing]))
    path = _file(tmp_path / "it.yaml")
    assert main([path, "--failed-only"]) == 0
    assert f"{missing} (it.yaml)" in capsys.readouterr().out.splitlines()
    assert main([path, "--failed-only", "--require-all"]) == 1


def test_a_run_of_no_case_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([_file(tmp_path / "it.yaml"), *NOTHING]) == 1
    assert "NOT RUN: no case at all" in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("name", ["absent.yaml", "a-directory", "binary.yaml"])
def test_a_file_that_cannot_be_read_fails_and_the_others_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (tmp_path / "a-directory").mkdir()
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x80")
    assert main([str(tmp_path / name), _file(tmp_path / "it.yaml"), "--failed-only"]) == 2
    printed = capsys.readouterr()
    assert f"NOT READ: {tmp_path / name}" in printed.err
    assert printed.out.splitlines()[-1] == "1 passed, 1 failed"


@pytest.mark.parametrize(
    ("second_failures", "closing", "line"),
    [
        ((), "3 passed, 0 failed", "FLAKY a: failed, and passed when it ran again. It failed with:"),
        (("again",), "2 passed, 1 failed", "FAILED TWICE a, now with:"),
    ],
)
def test_files_with_failed_cases_run_again_with_rerun(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    second_failures: tuple[str, ...],
    closing: str,
    line: str,
) -> None:
    runs: list[list[str]] = []

    def results(_: Path, selects: Callable[[str], bool], *__: object) -> Iterator[ServiceCaseResult]:
        selected = [case for case in ("before", "a", "behind") if selects(case)]
        runs.append(selected)
        for case in selected:
            failures = () if case != "a" else second_failures if len(runs) > 1 else ("once\n\ntwice",)
            yield ServiceCaseResult(NamedCase(case), failures, 0.1)

    monkeypatch.setattr(program, "_results", results)
    assert main([_file(tmp_path / "it.yaml"), "--rerun"]) == int(bool(second_failures))
    assert runs == [["before", "a", "behind"], ["before", "a"]]
    failures = ["       again"] if second_failures else ["       once", "       ", "       twice"]
    lines = capsys.readouterr().out.splitlines()
    assert lines[lines.index(line) :] == [line, *failures, closing]
