# SPDX-License-Identifier: Apache-2.0
"""The certificates and keys of a tenant's control plane: which there are, when each is due, how each
rotates."""
