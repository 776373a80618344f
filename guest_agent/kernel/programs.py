# SPDX-License-Identifier: Apache-2.0
"""Runs the guest's programs. Every process that the agent starts, it starts here."""

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from guest_agent.core.packet_filter import Broken

# Where a guest image has its iptables and nft; the environment is not asked.
DIRECTORIES = ("/usr/sbin", "/sbin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/local/bin")

# A ruleset of 5 000 Services takes iptables-nft 12 s; the node waits 60 s for the answer.
TIMEOUT_S = 50.0
# C: so that error texts are those that `guest_agent.core.filter_errors` reads.
_ENVIRONMENT = {"PATH": ":".join(DIRECTORIES), "LC_ALL": "C"}
_MAX_ERROR_CHARACTERS = 4_000


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended, and what it said."""

    status: int
    output: str
    errors: str


def find(name: str) -> Path | None:
    """The first program of that name, its links followed to the last but for the name itself."""
    for directory in DIRECTORIES:
        path = Path(directory, name)
        if path.is_file():
            return path
    return None


def run(program: Path, *arguments: str, given: str = "") -> Ended:
    """Run a program on `given` to its end. Raises `Broken` if it does not start or does not end."""
    try:
        ended = subprocess.run(  # noqa: S603 - programs of `find`, and texts only as their input
            (str(program), *arguments),
            input=given.encode(),
            capture_output=True,
            timeout=TIMEOUT_S,
            env=_ENVIRONMENT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Broken(f"{program.name} did not end within {TIMEOUT_S:g} s") from None
    except OSError as error:
        raise Broken(f"{program}: {error.strerror}") from None
    return Ended(ended.returncode, ended.stdout.decode("utf-8", "replace"), said(ended.stderr))


def start(program: Path, *arguments: str) -> tuple[subprocess.Popen[bytes], IO[bytes], IO[bytes], IO[bytes]]:
    """Start a program that stays; return its process, input, output and errors. Raises `Broken`.

    It reads the end of its input when we end, in whatever way: nobody else holds its other end.
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
        raise Broken(f"{program}: {error.strerror}") from None
    # A PIPE was asked for each, so there is one.
    stdin, stdout, stderr = (
        cast("IO[bytes]", each) for each in (process.stdin, process.stdout, process.stderr)
    )
    return process, stdin, stdout, stderr


def said(errors: bytes | bytearray) -> str:
    """The text of what a program wrote to stderr, cut where it has no end."""
    return errors.decode("utf-8", "replace").strip()[:_MAX_ERROR_CHARACTERS]
