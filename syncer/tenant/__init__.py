# SPDX-License-Identifier: Apache-2.0
"""One tenant: its session, caches' view, quota, and which deletions are due."""
