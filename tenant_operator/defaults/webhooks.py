# SPDX-License-Identifier: Apache-2.0
"""Recognises a tenant's webhook that refuses or breaks the operator's writes, and names the remedy.

A webhook for all objects without a server (`failurePolicy: Fail`) refuses every write in its tenant, also
those that would repair it. An API server's answer names the webhook, and not the configuration that has it.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from daemonkit.kube.resources import Status
from tenant_operator.model.objects import Object

# apiserver, admission/plugin/webhook: `failed calling webhook "x": ...` where it did not answer, and
# `admission webhook "x" denied the request: ...` where it did. Names are DNS names with three labels or more.
_CALL = re.compile(r'failed calling webhook "([a-z0-9.-]{1,253})"')
_DENIAL = re.compile(r'admission webhook "([a-z0-9.-]{1,253})" denied the request')
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,252}")
# Beside it: the name of the server that a webhook's answer is made of is the tenant's text.
_MAX_MESSAGE = 4096


class BlockingWebhook(NamedTuple):
    """A webhook that stood in the way of a write. `is_broken`: it did not answer; else it denied."""

    name: str
    is_broken: bool


def blocking_webhook(status: Status) -> BlockingWebhook | None:
    """The webhook that an API server's error names."""
    message = status.message[:_MAX_MESSAGE]
    if found := _CALL.search(message):
        return BlockingWebhook(found[1], is_broken=True)
    # What a webhook denies is answered with 400 to 499 of its choice (apiserver,
    # admission/plugin/webhook/errors).
    if found := _DENIAL.match(message):
        return BlockingWebhook(found[1], is_broken=False)
    return None


def configuration_of(webhook: BlockingWebhook, configurations: Iterable[Object]) -> str:
    """`Kind name` of the configuration that has the webhook; empty if none of them does."""
    for configuration in configurations:
        webhooks = configuration.get("webhooks")
        for each in webhooks if isinstance(webhooks, list) else ():
            if isinstance(each, dict) and each.get("name") == webhook.name:
                metadata = configuration.get("metadata")
                name = metadata.get("name") if isinstance(metadata, dict) else None
                # An API server has no other names; the text is for people and their terminals.
                if isinstance(name, str) and _NAME.fullmatch(name):
                    return f"{configuration.get('kind')} {name}"
    return ""


def webhook_problem(webhook: BlockingWebhook, configuration: str, virtual_cluster: str) -> str:
    """The sentence for a condition. `virtual_cluster` is the name for `kubectl vc`."""
    where = f"{configuration} (webhook {webhook.name})" if configuration else f"webhook {webhook.name}"
    what = (
        "does not answer, so that the tenant's API server refuses writes"
        if webhook.is_broken
        else "denies writes of vc-operator"
    )
    return f"{where} of the tenant {what}; repair it, or disable it: kubectl vc unblock {virtual_cluster}"
