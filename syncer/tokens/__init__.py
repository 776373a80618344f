# SPDX-License-Identifier: Apache-2.0
"""Service account tokens of pods: issued by the tenant, mounted from a super Secret, renewed in time."""
