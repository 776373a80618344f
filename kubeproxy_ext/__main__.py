# SPDX-License-Identifier: Apache-2.0
"""`python -m kubeproxy_ext --config FILE [--check-config]` is the daemon, `... render` prints one
guest's ruleset (see `kubeproxy_ext.render`)."""

import sys

from kubeproxy_ext import render


def main(argv: list[str] | None = None) -> int:
    """Run the verb; the exit code is 2 for arguments or input that cannot be used."""
    arguments = sys.argv[1:] if argv is None else argv
    if arguments[:1] == ["render"]:
        return render.run(arguments[1:])
    from kubeproxy_ext import daemon  # gRPC, which rendering does without

    return daemon.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
