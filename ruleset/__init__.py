# SPDX-License-Identifier: Apache-2.0
"""A ruleset as a value: everything that one guest needs to reach its Services, with a digest.

All code that renders, compares, merges, applies or reads rules goes through this package.
"""
