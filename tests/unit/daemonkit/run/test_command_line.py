# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass
from pathlib import Path

import pytest

from daemonkit import logs
from daemonkit.config.binding import ConfigError
from daemonkit.config.logging_config import LoggingConfig
from daemonkit.run.command_line import Arguments, load_or_exit, parse_arguments
from daemonkit.run.start_check import FileProblem, Severity


def test_config_and_check_config_are_parsed() -> None:
    assert parse_arguments("vn-agent", ["--config", "/a.yaml"]) == Arguments(Path("/a.yaml"), False)
    assert parse_arguments("vn-agent", ["--check-config", "--config=a"]) == Arguments(Path("a"), True)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "the following arguments are required: --config"),
        (["--config"], "argument --config: expected one argument"),
        (["--config", "a", "--conf", "b"], "unrecognized arguments: --conf b"),
        (["--config", "a", "b"], "unrecognized arguments: b"),
        (["--config", "--check-config"], "argument --config: expected one argument"),
    ],
)
def test_wrong_arguments_exit_2_with_the_reason(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        parse_arguments("vn-agent", argv)
    assert caught.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.endswith(f"vn-agent: error: {message}\n")


def test_version_needs_no_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse_arguments("vn-agent", ["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith("vn-agent 0.")


def test_a_good_configuration_is_returned() -> None:
    assert load_or_exit(Arguments(Path("/a.yaml"), False), str) == "/a.yaml"


def test_a_daemon_logs_as_its_configuration_says() -> None:
    @dataclass(frozen=True, slots=True)
    class Configuration:
        logging: LoggingConfig

    arguments = Arguments(Path("/a.yaml"), False)
    load_or_exit(arguments, lambda _: Configuration(LoggingConfig("error")))
    assert logs.level_name() == "error"
    logs.reset()


def test_a_bad_configuration_exits_2_with_all_errors(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def load(path: Path) -> int:
        raise ConfigError(str(path), ["kubelet.port: required", "zone: unknown key"])

    for is_check in (True, False):
        with pytest.raises(SystemExit) as caught:
            load_or_exit(Arguments(Path("/a.yaml"), is_check), load)
        assert caught.value.code == 2
        assert capsys.readouterr() == ("", "/a.yaml: kubelet.port: required\n/a.yaml: zone: unknown key\n")


def test_check_of_a_good_configuration_exits_0(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        load_or_exit(Arguments(Path("/a.yaml"), True), str)
    assert caught.value.code == 0
    assert capsys.readouterr() == ("", "/a.yaml: ok\n")


def problem(severity: Severity) -> FileProblem:
    return FileProblem("kubelet.caFile", Path("/ca.crt"), "Permission denied", "let it be read", severity)


@pytest.mark.parametrize(
    ("severity", "is_check", "code", "text"),
    [
        (Severity.FATAL, False, 2, "/a.yaml: kubelet.caFile: /ca.crt: Permission denied; let it be read\n"),
        (Severity.FATAL, True, 2, "/a.yaml: kubelet.caFile: /ca.crt: Permission denied; let it be read\n"),
        (Severity.ERROR, True, 2, "/a.yaml: kubelet.caFile: /ca.crt: Permission denied; let it be read\n"),
        (
            Severity.WARNING,
            True,
            0,
            "/a.yaml: warning: kubelet.caFile: /ca.crt: Permission denied; let it be read\n/a.yaml: ok\n",
        ),
    ],
)
def test_problems_of_files_are_printed_once(
    severity: Severity, is_check: bool, code: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        load_or_exit(Arguments(Path("/a.yaml"), is_check), str, lambda *_: [problem(severity)] * 2)
    assert caught.value.code == code
    assert capsys.readouterr() == ("", text)


@pytest.mark.parametrize("severity", [Severity.ERROR, Severity.WARNING])
def test_a_start_logs_problems_that_it_goes_on_with(
    severity: Severity, capsys: pytest.CaptureFixture[str]
) -> None:
    config = load_or_exit(Arguments(Path("/a.yaml"), False), str, lambda *_: [problem(severity)])
    assert config == "/a.yaml"
    assert capsys.readouterr().err.partition("WARNING ")[2] == (
        'daemonkit.run.command_line "starting, though a file of the configuration has a problem"'
        ' key=kubelet.caFile file=/ca.crt reason="Permission denied" remedy="let it be read"\n'
    )
