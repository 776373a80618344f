# SPDX-License-Identifier: Apache-2.0
"""What the tool decides and shows, as values and lines of text."""
