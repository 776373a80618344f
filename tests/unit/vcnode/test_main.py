# SPDX-License-Identifier: Apache-2.0
"""Exit codes and streams of `vcnode`."""

from pathlib import Path

import pytest

from daemonkit.version import VERSION
from tests.reference import commands
from vcnode import verbs
from vcnode.__main__ import EXPLAINERS, VERBS, main, parser

# Before a test: what they import takes the clock as a default, and fixtures ban it.
for _verb in (*VERBS, *EXPLAINERS.values()):
    verbs.load(_verb)


def test_verb_without_an_answer_exits_3_with_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tenant", "list", "--directory", str(tmp_path / "none")]) == 3
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"vcnode: {tmp_path}/none: No such file or directory\n"


def test_output_option_selects_a_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tenant", "list", "--directory", str(tmp_path), "-o", "yaml"]) == 0
    assert capsys.readouterr().out == "apiVersion: vcnode.io/v1alpha1\nkind: TenantFileList\nitems: []\n"


def test_every_verb_has_the_output_option() -> None:
    """`tenant` and `init` alone are none, and the demo is a program of its own."""
    lacking = [
        name
        for top in (parser(), *(parser((each,)) for each in EXPLAINERS.values()))
        for name, verb in commands.verbs(top)
        if "--output" not in verb.format_help()
    ]
    assert lacking == ["tenant", "init", "demo"]


def test_version_is_that_of_all_programs(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match=r"^0$"):
        main(["--version"])
    assert capsys.readouterr().out == f"vcnode {VERSION}\n"


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
