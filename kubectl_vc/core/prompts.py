# SPDX-License-Identifier: Apache-2.0
"""How each shell is started so that its prompt names the tenant, after the person's own settings."""

from collections.abc import Mapping
from posixpath import basename, join
from typing import NamedTuple

_VARIABLE = "KUBECTL_VC"


class ShellStart(NamedTuple):
    """The command line, further variables, and files to write before."""

    words: list[str]
    environment: dict[str, str]
    files: dict[str, str]


def shell_start(program: str, directory: str, path: str, environment: Mapping[str, str]) -> ShellStart:
    """Of a tenant `NAMESPACE/NAME`; `directory` is the call's own."""
    name = basename(program)
    more = {_VARIABLE: path}
    if name == "bash":
        file = join(directory, "bashrc")
        content = f'[ -r ~/.bashrc ] && . ~/.bashrc\nPS1="(${_VARIABLE}) ${{PS1-}}"\n'
        return ShellStart([program, "--rcfile", file], more, {file: content})
    if name == "zsh":
        home = environment.get("ZDOTDIR") or environment.get("HOME", "")
        content = (
            f"ZDOTDIR={_quoted(home)}\n[[ -r $ZDOTDIR/.zshrc ]] && . $ZDOTDIR/.zshrc\n"
            f'PROMPT="(${_VARIABLE}) $PROMPT"\n'
        )
        return ShellStart([program], {**more, "ZDOTDIR": directory}, {join(directory, ".zshrc"): content})
    return ShellStart([program], {**more, "PS1": f"({path}) $ "}, {})


def _quoted(text: str) -> str:
    inner = text.replace("'", "'\\''")
    return f"'{inner}'"
