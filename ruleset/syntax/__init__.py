# SPDX-License-Identifier: Apache-2.0
"""The closed vocabulary of documents, for each packet filter."""
