# SPDX-License-Identifier: Apache-2.0
"""Runs the guest's programs. Every process that the agent starts, it starts here."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from kata_bridge.guest.packet_filter import Broken

# Where a guest image has its iptables and nft; the environment is not asked.
DIRECTORIES = ("/usr/sbin", "/sbin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/local/bin")

# A ruleset of 5 000 Services takes iptables-nft 12 s; the node waits 60 s for the answer.
_TIMEOUT_S = 50.0
# C: so that error texts are those that `kata_bridge.guest.complaints` reads.
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
            timeout=_TIMEOUT_S,
            env=_ENVIRONMENT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Broken(f"{program.name} did not end within {_TIMEOUT_S:g} s") from None
    except OSError as error:
        raise Broken(f"{program}: {error.strerror}") from None
    errors = ended.stderr.decode("utf-8", "replace").strip()[:_MAX_ERROR_CHARACTERS]
    return Ended(ended.returncode, ended.stdout.decode("utf-8", "replace"), errors)
