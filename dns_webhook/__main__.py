# SPDX-License-Identifier: Apache-2.0
"""`dnsconfig-webhook --config FILE [--check-config]`."""

import datetime as dt
import sys
from collections.abc import Callable

from daemonkit import logs
from daemonkit.run.command_line import EXIT_UNUSABLE, load_or_exit, parse_arguments
from daemonkit.run.extras import needs_extra
from daemonkit.run.lifecycle import Lifecycle, run
from daemonkit.tls.contexts import TlsError

with needs_extra("dnsconfig-webhook", "webhook"):
    from dns_webhook.config import load
    from dns_webhook.credentials import CredentialsError
    from dns_webhook.rotation import CHECK_INTERVAL_S, utc_now
    from dns_webhook.service import WebhookService
    from dns_webhook.start_check import start_problems


def main(
    argv: list[str] | None = None,
    *,
    check_interval_s: float = CHECK_INTERVAL_S,
    now: Callable[[], dt.datetime] = utc_now,
) -> int:
    """Run the webhook; the exit code is 2 for a configuration or state that cannot be used.

    `check_interval_s` is how often dates and the registration are checked, `now` the clock for the dates.
    """
    arguments = parse_arguments("dnsconfig-webhook", sys.argv[1:] if argv is None else argv)
    logs.setup()
    config = load_or_exit(arguments, load, start_problems)
    try:
        service = WebhookService(config, check_interval_s=check_interval_s, now=now)
    except (CredentialsError, TlsError) as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_UNUSABLE

    async def body(life: Lifecycle) -> int:
        try:
            return await service.run(life)
        except (CredentialsError, TlsError) as error:
            sys.stderr.write(f"{error}\n")
            return EXIT_UNUSABLE

    return run(body)


if __name__ == "__main__":
    sys.exit(main())
