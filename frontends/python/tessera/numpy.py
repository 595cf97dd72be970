# SPDX-License-Identifier: Apache-2.0
"""numpy's functions over tensors of Tessera: recorded in a compiled function, run at once outside.

Names and arguments are numpy's. Differences: floats are f32 unless a dtype says otherwise, dtypes promote as PyTorch's do,
tensors are values (nothing is changed in place), and a function with `axis` takes it as a number or a tuple.
"""

from .tracing import array as _array
from .tracing.array import *  # noqa: F403

__all__ = _array.__all__
