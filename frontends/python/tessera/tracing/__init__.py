# SPDX-License-Identifier: Apache-2.0
"""Python functions over arrays, captured, guarded and compiled: what `tessera.jit` is made of.

The recorder, guards, dispatch and graph breaks are the library's; here Python's side of a capture stands: values that record
what is done with them, arguments as trees, and the functions that make operations.
"""
