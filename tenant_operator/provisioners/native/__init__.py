# SPDX-License-Identifier: Apache-2.0
"""A control plane of pods in the tenant's root namespace."""

from tenant_operator.provisioners.native.manifests import groups

__all__ = ["groups"]
