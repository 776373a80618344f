# SPDX-License-Identifier: Apache-2.0
"""A ruleset as a value: everything one guest needs to reach its Services, with a digest.

Pure. Whoever writes, compares, merges, applies or reads rules does it through this package.
"""
