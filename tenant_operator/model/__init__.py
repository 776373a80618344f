# SPDX-License-Identifier: Apache-2.0
"""Values that are read from objects, and the names of the objects that the operator makes."""
