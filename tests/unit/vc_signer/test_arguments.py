# SPDX-License-Identifier: Apache-2.0
"""The command line, read without argparse where it is plain."""

import pytest

from vc_signer.arguments import SignerArguments, command_parser, parse

WHERE = ["--keys", "/keys", "--socket", "/run/s"]


def values(arguments: SignerArguments) -> dict[str, object]:
    return {name: getattr(arguments, name) for name in SignerArguments.__slots__}


DEFAULTS = {
    "keys": "/keys",
    "socket": "/run/s",
    "refresh_seconds": 5,
    "max_token_seconds": 86_400,
    "probe_port": 6444,
    "peer_uid": -1,
}


@pytest.mark.parametrize(
    ("argv", "changed"),
    [
        (WHERE, {}),
        ([*WHERE, "--refresh-seconds", "10"], {"refresh_seconds": 10}),
        (
            [*WHERE, "--max-token-seconds", "600", "--probe-port", "0"],
            {"max_token_seconds": 600, "probe_port": 0},
        ),
        ([*WHERE, "--peer-uid", "0"], {"peer_uid": 0}),
        # By argparse:
        (["--keys=/keys", "--socket=/run/s", "--peer-uid=65534"], {"peer_uid": 65_534}),
        ([*WHERE, *WHERE], {}),
    ],
)
def test_arguments(argv: list[str], changed: dict[str, int]) -> None:
    assert values(parse(argv)) == DEFAULTS | changed


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        ([], "the following arguments are required: --keys, --socket"),
        (["--keys", "/keys"], "the following arguments are required: --socket"),
        (
            [*WHERE, "--refresh-seconds", "0"],
            "argument --refresh-seconds: '0' is not a number from 1 to 3600",
        ),
        ([*WHERE, "--refresh-seconds", "\u0661"], "is not a number from 1 to 3600"),
        ([*WHERE, "--max-token-seconds", "599"], "'599' is not a number from 600 to 4294967295"),
        ([*WHERE, "--probe-port", "65536"], "'65536' is not a number from 0 to 65535"),
        ([*WHERE, "--peer-uid", "-1"], "argument --peer-uid"),
        ([*WHERE, "--verbose", "1"], "unrecognized arguments: --verbose 1"),
        (["--keys", "--socket", "--socket", "/run/s"], "argument --keys: expected one argument"),
    ],
)
def test_wrong_arguments(argv: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse(argv)
    assert caught.value.code == 2
    assert text in capsys.readouterr().err


def test_the_help_names_all_options() -> None:
    assert all(f"--{name.replace('_', '-')}" in command_parser().format_help() for name in DEFAULTS)
