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
    from daemonkit.run.command_line import load_or_exit, parse_arguments
    from daemonkit.run.extras import needs_extra
    from daemonkit.run.lifecycle import Lifecycle, run
    from daemonkit.run.process_limits import return_large_blocks

    with needs_extra("kubeproxy-ext", "services"):
        from kubeproxy_ext.config import load
        from kubeproxy_ext.service import KubeproxyExt
        from kubeproxy_ext.start_check import start_problems

    return_large_blocks()  # saves 4 MB of resident memory at 1 000 Services
    arguments = parse_arguments("kubeproxy-ext", argv)
    logs.setup()
    config = load_or_exit(arguments, load, start_problems)

    async def body(life: Lifecycle) -> int:
        return await KubeproxyExt(config).run(life)

    return run(body)


if __name__ == "__main__":
    sys.exit(main())
