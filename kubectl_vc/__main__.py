# SPDX-License-Identifier: Apache-2.0
"""`kubectl vc VERB ...`, the program `kubectl-vc`. Exit codes: 0 done, 1 failed, 2 wrong usage."""

import os
import sys
from collections.abc import Callable, Sequence

from kubectl_vc.arguments import parse
from kubectl_vc.core.command import CREDENTIAL, Command
from kubectl_vc.core.faults import PluginError
from kubectl_vc.invocation import EXIT_DONE, EXIT_FAILED, Invocation
from kubectl_vc.kubectl import Kubectl

EXIT_INTERRUPTED = 130
# The name by which kubectl starts us for completion.
COMPLETION = "kubectl_complete-vc"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit code. Raises SystemExit for wrong usage and --help."""
    words = sys.argv[1:] if argv is None else argv
    if os.path.basename(sys.argv[0]) == COMPLETION:  # noqa: PTH119 - pathlib loads slowly
        return _complete(words)
    command = parse(words)
    invocation = _invocation(command)
    try:
        code = _verb(command.verb)(invocation)
        sys.stdout.flush()
    except PluginError as error:
        invocation.note(f"error: {error}")
        return EXIT_FAILED
    except BrokenPipeError:
        # `kubectl vc get | head` reads no further. The interpreter flushes once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return code


def _complete(words: Sequence[str]) -> int:
    from kubectl_vc import complete

    cluster = _invocation(complete.command_of(words)).cluster
    sys.stdout.writelines(f"{line}\n" for line in complete.complete(words, cluster))
    return EXIT_DONE


def _invocation(command: Command) -> Invocation:
    environment = dict(os.environ)  # noqa: TID251 - a person's tool: KUBECONFIG, PATH and SHELL are theirs
    return Invocation(
        command,
        Kubectl(command.scope.flags(), environment),
        lambda flags, more: Kubectl(flags, {**environment, **more}),
        sys.stdout,
        sys.stderr,
        sys.stdin,
        environment,
        os.path.abspath(sys.argv[0]),  # noqa: PTH100 - pathlib loads slowly
    )


def _verb(name: str) -> Callable[[Invocation], int]:
    """Loaded when it is asked for: from a zipapp, each module is compiled at each start."""
    match name:
        case "create" | "get":
            from kubectl_vc import create

            return create.create if name == "create" else create.get
        case "kubeconfig" | "credential":
            from kubectl_vc import access

            return access.credential if name == CREDENTIAL else access.save_kubeconfig
        case "shell":
            from kubectl_vc import shell

            return shell.shell
        case "delete":
            from kubectl_vc import delete

            return delete.delete
        case "doctor":
            from kubectl_vc import doctor

            return doctor.doctor
        case "unblock":
            from kubectl_vc import unblock

            return unblock.unblock
    from kubectl_vc.requests import REQUESTS

    return REQUESTS[name]


if __name__ == "__main__":
    sys.exit(main())
