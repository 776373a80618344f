# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for what kubeproxy-ext speaks to; no part of the daemon."""
