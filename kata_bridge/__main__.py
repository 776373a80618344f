# SPDX-License-Identifier: Apache-2.0
"""`python -m kata_bridge --config FILE [--check-config]`."""

import sys

from daemonkit import logs
from daemonkit.run.command_line import load_or_exit, parse_arguments
from daemonkit.run.extras import needs_extra
from daemonkit.run.lifecycle import EXIT_FAILED, Lifecycle, run

with needs_extra("kata-bridge", "services"):
    from kata_bridge.config import load
    from kata_bridge.lock import AlreadyRunningError
    from kata_bridge.service import CannotStartError, KataBridge
    from kata_bridge.start_check import start_problems

_log = logs.get("kata_bridge")


def main(argv: list[str] | None = None) -> int:
    """Run the daemon; the exit code is 2 for an invalid configuration."""
    arguments = parse_arguments("kata-bridge", sys.argv[1:] if argv is None else argv)
    logs.setup()
    config = load_or_exit(arguments, load, start_problems)

    async def body(life: Lifecycle) -> int:
        try:
            bridge = KataBridge(config, arguments.config)
        except (AlreadyRunningError, CannotStartError, OSError) as error:
            _log.error("cannot start", reason=str(error))
            return EXIT_FAILED
        return await bridge.run(life)

    return run(body)


if __name__ == "__main__":
    sys.exit(main())
