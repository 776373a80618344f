# SPDX-License-Identifier: Apache-2.0
"""The cases of a service proxy: read from files, and evaluated by the model, texts and kernels."""
