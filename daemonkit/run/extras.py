# SPDX-License-Identifier: Apache-2.0
"""What a program says whose optional libraries are not installed."""

import contextlib
import sys
from collections.abc import Iterator

from daemonkit.run.command_line import EXIT_UNUSABLE

# The modules that each extra of `pyproject.toml` brings. That another one is missing is a fault of ours.
_MODULES = {
    "services": frozenset({"cryptography", "grpc"}),
    "webhook": frozenset({"aiohttp", "cryptography"}),
}


@contextlib.contextmanager
def needs_extra(program: str, extra: str) -> Iterator[None]:
    """Around imports: exits with 2 where a library of the extra is missing, and names the remedy.

    Raises SystemExit, and ModuleNotFoundError for any other module.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _MODULES[extra]:
            raise
        sys.stderr.write(f"{program} needs the module {missing}: pip install 'vcnode[{extra}]'\n")
        raise SystemExit(EXIT_UNUSABLE) from None
