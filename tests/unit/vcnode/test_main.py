# SPDX-License-Identifier: Apache-2.0
"""`vcnode.__main__`: exit codes and what goes to which stream."""

from pathlib import Path

import pytest

from vcnode.__main__ import main


def test_a_verb_that_fails_says_so_in_one_line_on_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tenant", "list", "--directory", str(tmp_path / "none")]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"vcnode: {tmp_path}/none: No such file or directory\n"


def test_a_verb_that_works(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tenant", "list", "--directory", str(tmp_path)]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("argv", [[], ["nonsense"], ["tenant"], ["status", "--nonsense"], ["tenant", "show"]])
def test_wrong_usage(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(argv)
    assert caught.value.code == 2
    assert "usage: vcnode" in capsys.readouterr().err


def test_interrupted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("vcnode.tenant._read_all", interrupt)
    assert main(["tenant", "list", "--directory", str(tmp_path)]) == 130
