# SPDX-License-Identifier: Apache-2.0
"""What is kept of each object, and the super cluster's objects."""
