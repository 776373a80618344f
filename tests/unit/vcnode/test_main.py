# SPDX-License-Identifier: Apache-2.0
"""Exit codes and streams of `vcnode`."""

from pathlib import Path

import pytest

from vcnode.__main__ import main


def test_failing_verb_exits_1_with_a_line_on_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tenant", "list", "--directory", str(tmp_path / "none")]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"vcnode: {tmp_path}/none: No such file or directory\n"


def test_working_verb_exits_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tenant", "list", "--directory", str(tmp_path)]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "argv", [[], ["nonsense"], ["tenant"], ["status", "--nonsense"], ["tenant", "show"], ["explain", "dns"]]
)
def test_wrong_usage_exits_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(argv)
    assert caught.value.code == 2
    assert "usage: vcnode" in capsys.readouterr().err


def test_interrupted_verb_exits_130(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("vcnode.tenant._read_all", interrupt)
    assert main(["tenant", "list", "--directory", str(tmp_path)]) == 130
