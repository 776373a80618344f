# SPDX-License-Identifier: Apache-2.0
"""Fakes of the syncer's ports."""
