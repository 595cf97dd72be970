# SPDX-License-Identifier: Apache-2.0
"""Formulas over floats: Python's operators build elementwise ops."""

from ..emit import Value


class Expression:
    """A float Value in a formula. Numbers beside it have its dtype; comparisons give Expressions of bools."""

    __slots__ = ("e", "value")
    __hash__ = None

    def __init__(self, e, value):
        self.e, self.value = e, value

    @property
    def dtype(self):
        return self.value.dtype

    def of(self, x):
        """x, a number or an Expression, as a Value of this dtype."""
        return x.value if isinstance(x, Expression) else self.e.scalar(x, self.dtype)

    def op(self, name, *others, **attributes):
        return Expression(self.e, self.e(name, self.value, *[self.of(x) for x in others], **attributes))

    def _reversed(self, name, other):
        return Expression(self.e, self.e(name, self.of(other), self.value))

    def __add__(self, x):
        return self.op("add", x)

    def __radd__(self, x):
        return self.op("add", x)

    def __sub__(self, x):
        return self.op("sub", x)

    def __rsub__(self, x):
        return self._reversed("sub", x)

    def __mul__(self, x):
        return self.op("mul", x)

    def __rmul__(self, x):
        return self.op("mul", x)

    def __truediv__(self, x):
        return self.op("div", x)

    def __rtruediv__(self, x):
        return self._reversed("div", x)

    def __neg__(self):
        return self.op("neg")

    def __abs__(self):
        return self.op("abs")

    def __lt__(self, x):
        return self.op("lt", x)

    def __le__(self, x):
        return self.op("le", x)

    def __gt__(self, x):
        return self.op("gt", x)

    def __ge__(self, x):
        return self.op("ge", x)

    def __eq__(self, x):
        return self.op("eq", x)

    def __ne__(self, x):
        return self.op("ne", x)

    def __and__(self, x):
        return self.op("logical_and", x)

    def __or__(self, x):
        return self.op("logical_or", x)

    def then(self, a, b):
        """Of bools: a where true, else b; one of them is an Expression."""
        like = a if isinstance(a, Expression) else b
        return Expression(self.e, self.e("select", self.value, like.of(a), like.of(b)))


def formula(e, x, dtype):
    return Expression(e, e.cast(x, dtype) if isinstance(x, Value) else e.scalar(x, dtype))
