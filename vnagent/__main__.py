# SPDX-License-Identifier: Apache-2.0
"""`python -m vnagent --config FILE [--check-config]`."""

import sys
from pathlib import Path

from daemonkit import logs
from daemonkit.config.binding import ConfigError
from daemonkit.run.command_line import load_or_exit, parse_arguments
from daemonkit.run.lifecycle import Lifecycle, run
from vnagent import trust
from vnagent.config import VnAgentConfiguration, load
from vnagent.service import Service


def load_usable(path: Path) -> VnAgentConfiguration:
    """Read the configuration and look at the files that it names. Raises ConfigError."""
    config = load(path)
    problems = trust.problems(config)
    if problems:
        raise ConfigError(str(path), problems)
    return config


def main(argv: list[str] | None = None) -> int:
    """Run the daemon; the exit code is 2 for a configuration that cannot be used."""
    arguments = parse_arguments("vn-agent", sys.argv[1:] if argv is None else argv)
    logs.setup()
    config = load_or_exit(arguments, load_usable)

    async def body(life: Lifecycle) -> int:
        return await Service(config).run(life)

    return run(body)


if __name__ == "__main__":
    sys.exit(main())
