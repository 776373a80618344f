# SPDX-License-Identifier: Apache-2.0
"""Where a control plane keeps its objects."""
