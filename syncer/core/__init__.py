# SPDX-License-Identifier: Apache-2.0
"""What the syncer decides with, whatever the kind. Pure."""
