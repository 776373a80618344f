# SPDX-License-Identifier: Apache-2.0
"""The ring of network namespaces and real packet filters."""
