# SPDX-License-Identifier: Apache-2.0
"""`python -m kubeproxy_ext --config FILE` is the daemon, `... render` prints one guest's ruleset."""

import sys

from kubeproxy_ext import render


def main(argv: list[str] | None = None) -> int:
    """Run the verb; the exit code is 2 for arguments or input that cannot be used."""
    arguments = sys.argv[1:] if argv is None else argv
    if arguments[:1] == ["render"]:
        return render.run(arguments[1:])
    return _run_daemon(arguments)


def _run_daemon(argv: list[str]) -> int:
    # Imported here because `render` runs without gRPC.
    from daemonkit import logs
    from daemonkit.malloc import return_large_blocks
    from daemonkit.run import lifecycle
    from kubeproxy_ext.config import load
    from kubeproxy_ext.service import Service

    return_large_blocks()  # saves 4 MB of resident memory at 1 000 Services
    arguments = lifecycle.parse_arguments("kubeproxy-ext", argv)
    logs.setup()
    config = lifecycle.configured(arguments, load)

    async def body(life: lifecycle.Lifecycle) -> int:
        return await Service(config).run(life)

    return lifecycle.run(body)


if __name__ == "__main__":
    sys.exit(main())
