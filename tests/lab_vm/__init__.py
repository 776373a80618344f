# SPDX-License-Identifier: Apache-2.0
"""The ring of guests with kernels of their own (User-mode Linux), our agent in each."""
