# SPDX-License-Identifier: Apache-2.0
"""A Kubernetes client of the size that the daemons need: list, watch, and a store that follows."""
