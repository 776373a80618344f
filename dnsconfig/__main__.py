# SPDX-License-Identifier: Apache-2.0
"""`python -m dnsconfig --config FILE [--check-config]`."""

import sys

from daemonkit import logs
from daemonkit.run.command_line import load_or_exit, parse_arguments
from daemonkit.run.extras import needs_extra
from daemonkit.run.lifecycle import Lifecycle, run

with needs_extra("dnsconfig", "services"):
    from dnsconfig.config import load
    from dnsconfig.service import DnsConfigService
    from dnsconfig.start_check import start_problems


def main(argv: list[str] | None = None) -> int:
    """Run the daemon; the exit code is 2 for a configuration that cannot be used."""
    arguments = parse_arguments("dnsconfig", sys.argv[1:] if argv is None else argv)
    logs.setup()
    config = load_or_exit(arguments, load, start_problems)

    async def body(life: Lifecycle) -> int:
        return await DnsConfigService(config).run(life)

    return run(body)


if __name__ == "__main__":
    sys.exit(main())
