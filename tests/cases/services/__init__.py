# SPDX-License-Identifier: Apache-2.0
"""The cases of a service proxy: read from files, and answered by models, texts and kernels."""
