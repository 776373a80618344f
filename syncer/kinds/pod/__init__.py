# SPDX-License-Identifier: Apache-2.0
"""Pods: how a tenant's pod becomes a super pod, and how its truth comes up. Pure.

`sync` is the plan; `down` makes the super pod, with one module for each part that is translated; `updates`
carries later changes down; `status` makes the tenant's status of the super pod's.
"""
