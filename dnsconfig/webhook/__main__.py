# SPDX-License-Identifier: Apache-2.0
"""`dnsconfig-webhook --config FILE [--check-config]`."""

import sys

from daemonkit import logs, run
from daemonkit.run import Lifecycle
from dnsconfig.webhook.config import load
from dnsconfig.webhook.credentials import CredentialsError
from dnsconfig.webhook.service import Service


def main(argv: list[str] | None = None) -> int:
    """Run the webhook; the exit code is 2 for a configuration or state that cannot be used."""
    arguments = run.parse_arguments("dnsconfig-webhook", sys.argv[1:] if argv is None else argv)
    logs.setup()
    config = run.configured(arguments, load)
    try:
        service = Service(config)
    except CredentialsError as error:
        sys.stderr.write(f"{error}\n")
        return run.EXIT_UNUSABLE

    async def body(life: Lifecycle) -> int:
        try:
            return await service.run(life)
        except CredentialsError as error:
            sys.stderr.write(f"{error}\n")
            return run.EXIT_UNUSABLE

    return run.run(body)


if __name__ == "__main__":
    sys.exit(main())
