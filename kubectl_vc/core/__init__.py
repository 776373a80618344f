# SPDX-License-Identifier: Apache-2.0
"""What the plugin decides and writes, from values."""
