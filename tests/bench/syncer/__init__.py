# SPDX-License-Identifier: Apache-2.0
"""The syncer between real API servers, under load."""
