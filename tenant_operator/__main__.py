# SPDX-License-Identifier: Apache-2.0
"""`python -m tenant_operator --config FILE [--check-config]`."""

import sys

from daemonkit import logs
from daemonkit.kube.credentials import CredentialsError
from daemonkit.run.command_line import EXIT_UNUSABLE, load_or_exit, parse_arguments
from daemonkit.run.lifecycle import Lifecycle, api_service, run
from daemonkit.run.process_limits import return_large_blocks
from tenant_operator.config import load
from tenant_operator.run.service import OperatorService
from tenant_operator.run.start_check import start_problems

_log = logs.get(__name__)


def main(argv: list[str] | None = None) -> int:
    """Run the daemon; the exit code is 2 for a configuration that cannot be used."""
    arguments = parse_arguments("vc-operator", sys.argv[1:] if argv is None else argv)
    logs.setup()
    # Pages of lists are large: the kernel has them back at once.
    return_large_blocks()
    config = load_or_exit(arguments, load, start_problems)

    async def body(life: Lifecycle) -> int:
        try:
            service = OperatorService(config, api_service())
        except CredentialsError as error:
            _log.error("cannot start: the super cluster's credentials are unusable", reason=error)
            return EXIT_UNUSABLE
        return await service.run(life)

    return run(body)


if __name__ == "__main__":
    sys.exit(main())
