# SPDX-License-Identifier: Apache-2.0
"""A fake kubelet: its pods, its pages, and its connections."""
