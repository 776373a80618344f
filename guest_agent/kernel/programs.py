# SPDX-License-Identifier: Apache-2.0
"""Runs the guest's programs. The agent starts processes only here."""

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from guest_agent.core.packet_filter import FilterUnavailableError

# Where guest images have iptables and nft. PATH is not read.
DIRECTORIES = ("/usr/sbin", "/sbin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/local/bin")

# iptables-nft takes 12 s for a ruleset of 5 000 Services. The node waits 60 s for the result.
TIMEOUT_S = 50.0
# LC_ALL: `guest_agent.core.filter_errors` reads English texts.
_ENVIRONMENT = {"PATH": ":".join(DIRECTORIES), "LC_ALL": "C"}
_MAX_ERROR_CHARACTERS = 4_000


@dataclass(frozen=True, slots=True)
class ProgramResult:
    """The exit status of a program, negative for a signal, and its output."""

    status: int
    output: str
    errors: str


def find(name: str) -> Path | None:
    """The first program of that name in `DIRECTORIES`."""
    for directory in DIRECTORIES:
        path = Path(directory, name)
        if path.is_file():
            return path
    return None


def run(program: Path, *arguments: str, stdin: str = "") -> ProgramResult:
    """Run a program to its end. Raises `FilterUnavailableError` if it does not start or end."""
    try:
        done = subprocess.run(  # noqa: S603 - programs of `find`, and scripts only as their input
            (str(program), *arguments),
            input=stdin.encode(),
            capture_output=True,
            timeout=TIMEOUT_S,
            env=_ENVIRONMENT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise FilterUnavailableError(f"{program.name} did not end within {TIMEOUT_S:g} s") from None
    except OSError as error:
        raise FilterUnavailableError(f"{program}: {error.strerror}") from None
    return ProgramResult(done.returncode, done.stdout.decode("utf-8", "replace"), error_text(done.stderr))


def start(program: Path, *arguments: str) -> tuple[subprocess.Popen[bytes], IO[bytes], IO[bytes], IO[bytes]]:
    """Start a program; return its process, stdin, stdout and stderr. Raises `FilterUnavailableError`.

    It reads the end of its input when the agent ends in any way: only the agent has the other end.
    """
    try:
        process = subprocess.Popen(  # noqa: S603 - as above
            (str(program), *arguments),
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_ENVIRONMENT,
        )
    except OSError as error:
        raise FilterUnavailableError(f"{program}: {error.strerror}") from None
    # PIPE was passed for each.
    stdin, stdout, stderr = (
        cast("IO[bytes]", each) for each in (process.stdin, process.stdout, process.stderr)
    )
    return process, stdin, stdout, stderr


def error_text(stderr: bytes | bytearray) -> str:
    """What a program wrote to stderr, truncated."""
    return stderr.decode("utf-8", "replace").strip()[:_MAX_ERROR_CHARACTERS]
