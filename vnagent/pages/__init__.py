# SPDX-License-Identifier: Apache-2.0
"""The kubelet's pages, rebuilt for a tenant over bytes and values. No socket, clock or log."""
