# SPDX-License-Identifier: Apache-2.0
"""What is wrong with the state directory. Apart from what fills it, which is not always needed."""


class CredentialsError(Exception):
    """The state directory cannot be used, or a sandbox has no usable name; says which and why."""
