# SPDX-License-Identifier: Apache-2.0
"""Services in guests, measured beside the real kube-proxy and beside one process a rule."""
