# SPDX-License-Identifier: Apache-2.0
"""`kubectl vc VERB ...`, the program `kubectl-vc`. Exit codes: 0 done, 1 failed, 2 wrong usage."""

import os
import sys
from collections.abc import Callable, Sequence

from kubectl_vc import access, complete, create, delete, doctor, requests, shell, unblock
from kubectl_vc.arguments import parse
from kubectl_vc.core.command import CREDENTIAL, Command
from kubectl_vc.core.faults import PluginError
from kubectl_vc.invocation import EXIT_DONE, EXIT_FAILED, Invocation
from kubectl_vc.kubectl import Kubectl

EXIT_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit code. Raises SystemExit for wrong usage and --help."""
    words = sys.argv[1:] if argv is None else argv
    if os.path.basename(sys.argv[0]) == complete.PROGRAM:  # noqa: PTH119 - pathlib loads slowly
        return _complete(words)
    command = parse(words)
    invocation = _invocation(command)
    try:
        code = VERBS[command.verb](invocation)
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


VERBS: dict[str, Callable[[Invocation], int]] = {
    "create": create.create,
    "get": create.get,
    "kubeconfig": access.save_kubeconfig,
    "shell": shell.shell,
    "upgrade": requests.upgrade,
    "rollback": requests.rollback,
    "sleep": requests.sleep,
    "wake": requests.wake,
    "backup": requests.backup,
    "restore": requests.restore,
    "rotate": requests.rotate,
    "delete": delete.delete,
    "doctor": doctor.doctor,
    "unblock": unblock.unblock,
    CREDENTIAL: access.credential,
}

if __name__ == "__main__":
    sys.exit(main())
