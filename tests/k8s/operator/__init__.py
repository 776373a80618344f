# SPDX-License-Identifier: Apache-2.0
"""vc-operator in a real super cluster, whose control planes are real pods."""
