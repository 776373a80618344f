# SPDX-License-Identifier: Apache-2.0
"""How shells are started."""

import pytest

from kubectl_vc.core.prompts import ShellStart, shell_start

TENANT = {"KUBECTL_VC": "tenants/acme"}


@pytest.mark.parametrize(
    ("program", "environment", "expected"),
    [
        (
            "/bin/bash",
            {},
            ShellStart(
                ["/bin/bash", "--rcfile", "/t/bashrc"],
                TENANT,
                {"/t/bashrc": '[ -r ~/.bashrc ] && . ~/.bashrc\nPS1="($KUBECTL_VC) ${PS1-}"\n'},
            ),
        ),
        (
            "/bin/zsh",
            {"HOME": "/home/o'neill"},
            ShellStart(
                ["/bin/zsh"],
                {**TENANT, "ZDOTDIR": "/t"},
                {
                    "/t/.zshrc": "ZDOTDIR='/home/o'\\''neill'\n[[ -r $ZDOTDIR/.zshrc ]] && ."
                    " $ZDOTDIR/.zshrc\n"
                    'PROMPT="($KUBECTL_VC) $PROMPT"\n'
                },
            ),
        ),
        ("/bin/sh", {}, ShellStart(["/bin/sh"], {**TENANT, "PS1": "(tenants/acme) $ "}, {})),
    ],
)
def test_the_prompt_names_the_tenant(program: str, environment: dict[str, str], expected: ShellStart) -> None:
    assert shell_start(program, "/t", "tenants/acme", environment) == expected
