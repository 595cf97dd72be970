# SPDX-License-Identifier: Apache-2.0
"""Special functions (torch.special) as formulas over elementary ones.

Bessel's functions, erfcx, Airy's and the normal quantile are Chebyshev series on intervals, with growth, zeros and logarithms
put back (coefficients.py; scripts/special_functions.py derives them). Chebyshev's polynomials are their closed forms. Where a
formula does not hold, the value is what PyTorch gives. Halves and integers compute in f32, as ATen does.
"""

import math

import torch

from ..emit import HALVES, Unsupported
from . import coefficients as c
from .expression import formula
from .table import TABLE, lowers, number


def _work_dtype(out):
    return torch.float32 if out.dtype in HALVES else out.dtype


def series(coefficients, t):
    """A Chebyshev series in t of [-1, 1], by Clenshaw's recurrence. Terms below f32's rounding are left out for f32."""
    if t.dtype == torch.float32:
        last = max(k for k, a in enumerate(coefficients) if abs(a) > 1e-9 * abs(coefficients[0]))
        coefficients = coefficients[: last + 1]
    doubled = t + t
    b1, b2 = None, None
    for a in reversed(coefficients[1:]):
        if b1 is None:
            b1 = t * 0.0 + a
        elif b2 is None:
            b1, b2 = doubled * b1 + a, b1
        else:
            b1, b2 = doubled * b1 - b2 + a, b1
    return t * b1 - b2 + coefficients[0]


def _lower_unary(f):
    def lower(e, out, x):
        return e.cast(f(formula(e, x, _work_dtype(out))).value, out.dtype)

    return lower


def unary(*names, eager_is_exact=True):
    """Registers a formula of one float. Where ATen's own f64 is off by more than 1e-8, f64 stays with it: results would
    differ."""

    def register(f):
        lower = _lower_unary(f)

        def lower_where_equal(e, out, x):
            if out.dtype == torch.float64:
                raise Unsupported("ATen's f64 is less exact than f64, and results would differ")
            return lower(e, out, x)

        for name in names:
            TABLE[f"aten.{name}.default"] = lower if eager_is_exact else lower_where_equal
        return f

    return register


# ---- modified Bessel functions


def _scaled_i0(a):
    return (a <= 8.0).then(series(c.I0_SMALL, a * 0.25 - 1.0), series(c.I0_LARGE, 16.0 / a - 1.0) / a.op("sqrt"))


def _scaled_i1(a):
    return (a <= 8.0).then(series(c.I1_SMALL, a * 0.25 - 1.0) * a, series(c.I1_LARGE, 16.0 / a - 1.0) / a.op("sqrt"))


@unary("special_i0e")
def _i0e(x):
    return _scaled_i0(abs(x))


@unary("i0", "special_i0", "special_modified_bessel_i0")
def _i0(x):
    return abs(x).op("exp") * _scaled_i0(abs(x))


@unary("special_i1e")
def _i1e(x):
    y = _scaled_i1(abs(x))
    return (x < 0.0).then(-y, y)


@unary("special_i1", "special_modified_bessel_i1")
def _i1(x):
    y = abs(x).op("exp") * _scaled_i1(abs(x))
    return (x < 0.0).then(-y, y)


def _from_zero(x, at_zero, y):
    """y, or what a function is at 0 and below."""
    return (x == 0.0).then(at_zero, (x < 0.0).then(math.nan, y))


def _k0_small(x):
    i0 = x.op("exp") * series(c.I0_SMALL, x * 0.25 - 1.0)
    return series(c.K0_SMALL, x * x * 0.5 - 1.0) - (x * 0.5).op("log") * i0


def _k1_small(x):
    i1 = x.op("exp") * series(c.I1_SMALL, x * 0.25 - 1.0) * x
    return series(c.K1_SMALL, x * x * 0.5 - 1.0) / x + (x * 0.5).op("log") * i1


def _register_k():
    for name, small, large in (("k0", _k0_small, c.K0_LARGE), ("k1", _k1_small, c.K1_LARGE)):

        @unary(f"special_modified_bessel_{name}")
        def _k(x, small=small, large=large):
            beyond = (-x).op("exp") * series(large, 4.0 / x - 1.0) / x.op("sqrt")
            return _from_zero(x, math.inf, (x <= 2.0).then(small(x), beyond))

        @unary(f"special_scaled_modified_bessel_{name}")
        def _scaled_k(x, small=small, large=large):
            beyond = series(large, 4.0 / x - 1.0) / x.op("sqrt")
            return _from_zero(x, math.inf, (x <= 2.0).then(small(x) * x.op("exp"), beyond))


_register_k()

# ---- Bessel functions


def _between_zeros(z, zeros):
    """The product of z - s over the zeros s, each in two parts so that nothing is lost beside one."""
    y = 1.0
    for high, low in zeros:
        y = (z - high - low) * y
    return y


def _small_j0(z):
    return _between_zeros(z, c.J0_ZEROS) * series(c.J0_SMALL, z * 0.08 - 1.0)


def _small_j1(x, z):
    return x * _between_zeros(z, c.J1_ZEROS) * series(c.J1_SMALL, z * 0.08 - 1.0)


def _hankel(a, z, p, q):
    """(P, Q, sin + cos, sin - cos, amplitude) of Hankel's form beyond 5."""
    t = 50.0 / z - 1.0
    sin, cos = a.op("sin"), a.op("cos")
    return series(p, t), series(q, t) / a, sin + cos, sin - cos, 1.0 / (a * math.pi).op("sqrt")


@unary("special_bessel_j0", eager_is_exact=False)
def _j0(x):
    a, z = abs(x), x * x
    p, q, plus, minus, amplitude = _hankel(a, z, c.P0, c.Q0)
    return (a <= 5.0).then(_small_j0(z), amplitude * (p * plus - q * minus))


@unary("special_bessel_j1")
def _j1(x):
    a, z = abs(x), x * x
    p, q, plus, minus, amplitude = _hankel(a, z, c.P1, c.Q1)
    y = (a <= 5.0).then(_small_j1(a, z), amplitude * (p * minus + q * plus))
    return (x < 0.0).then(-y, y)


@unary("special_bessel_y0")
def _y0(x):
    z = x * x
    p, q, plus, minus, amplitude = _hankel(x, z, c.P0, c.Q0)
    small = series(c.Y0_SMALL, z * 0.08 - 1.0) + x.op("log") * _small_j0(z) * (2 / math.pi)
    return _from_zero(x, -math.inf, (x <= 5.0).then(small, amplitude * (p * minus + q * plus)))


@unary("special_bessel_y1", eager_is_exact=False)
def _y1(x):
    z = x * x
    p, q, plus, minus, amplitude = _hankel(x, z, c.P1, c.Q1)
    small = series(c.Y1_SMALL, z * 0.08 - 1.0) * x + (x.op("log") * _small_j1(x, z) - 1.0 / x) * (2 / math.pi)
    return _from_zero(x, -math.inf, (x <= 5.0).then(small, amplitude * (q * minus - p * plus)))


@unary("special_spherical_bessel_j0")
def _spherical_j0(x):
    z = x * x
    y = z * 0.0
    for k in range(8, -1, -1):  # sin(x) / x as its series
        y = y * z + (-1) ** k / math.factorial(2 * k + 1)
    return x.op("is_inf").then(0.0, (abs(x) < 0.5).then(y, x.op("sin") / x))


@unary("special_airy_ai", eager_is_exact=False)
def _airy(x):
    a = abs(x)
    z = a * a.op("sqrt") * (2 / 3)
    root = a.op("sqrt").op("sqrt")
    right = (-z).op("exp") * series(c.AIRY_RIGHT, (8 / 3 * math.sqrt(2)) / z - 1.0) / (root * (2 * math.sqrt(math.pi)))
    t = 250.0 / (a * a * a) - 1.0
    sin, cos = z.op("sin"), z.op("cos")
    left = (series(c.AIRY_P, t) * (cos + sin) + series(c.AIRY_Q, t) / z * (sin - cos)) / (root * math.sqrt(2 * math.pi))
    middle = series(c.AIRY_MIDDLE, (x * 2.0 + 3.0) * (1 / 7))
    y = (x >= 2.0).then(right, (x <= -5.0).then(left, middle))
    return x.op("is_inf").then(math.nan, y)


# ---- the error function's relatives


@unary("special_erfcx")
def _erfcx(x):
    a = abs(x)
    y = series(c.ERFCX, 1.0 - 7.5 / (a + 3.75)) / (a * 2.0 + 1.0)
    return (x < 0.0).then((x * x).op("exp") * 2.0 - y, y)


@unary("special_ndtri")
def _ndtri(p):
    lower = p < 0.5
    m = lower.then(p, 1.0 - p)
    t = (m.op("log") * -2.0).op("sqrt")
    u = 1.0 / t
    rest = (t < 8.0).then(series(c.NORMAL_TAIL, u * (16 / 3) - 5 / 3), series(c.NORMAL_FAR, u * (128 / 7) - 9 / 7))
    tail = t - t.op("log") * u - rest * u
    y = (m > math.exp(-2)).then((p * 2.0 - 1.0).op("erfinv") * math.sqrt(2), lower.then(-tail, tail))
    y = (p == 0.0).then(-math.inf, (p == 1.0).then(math.inf, y))
    return ((p < 0.0) | (p > 1.0)).then(math.nan, y)


# ---- polygamma


def _trigamma(x):
    left = x < 0.5
    sine = (x * math.pi).op("sin")
    y = left.then(1.0 - x, x)
    total = None
    for _ in range(6):  # to where the asymptotic series holds
        term = 1.0 / (y * y)
        total = term if total is None else total + term
        y = y + 1.0
    z = 1.0 / (y * y)
    total = total + (1.0 + 0.5 / y + z * (1 / 6 - z * (1 / 30 - z * (1 / 42)))) / y
    return left.then(math.pi**2 / (sine * sine) - total, total)


def _zeta_of_positive(s, x):
    """Hurwitz's zeta function of an integer s > 1 and x > 0: nine terms, then Euler's and Maclaurin's formula."""
    total, y = None, x
    for _ in range(9):
        term = y.op("pow", -float(s))
        total = term if total is None else total + term
        y = y + 1.0
    power = y.op("pow", -float(s))
    total = total + y * power * (1 / (s - 1)) + power * 0.5
    rising, z = float(s), power / y
    for k, b in enumerate(_BERNOULLI):
        total = total + z * (rising * b / math.factorial(2 * k + 2))
        rising *= (s + 2 * k + 1) * (s + 2 * k + 2)
        z = z / (y * y)
    return total


_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)


def _cotangent_derivative(n):
    """The n-th derivative of cot x as a polynomial in cot x, lowest power first."""
    p = [0, 1]
    for _ in range(n):
        d = [k * a for k, a in enumerate(p)][1:]
        p = [-(a + b) for a, b in zip(d + [0, 0], [0, 0] + d)]
    return p


_LARGEST_ORDER = 12


@lowers("aten.polygamma.default", "aten.special_polygamma.default")
def _polygamma(e, out, n, x):
    n = number(n)
    if n == 0:
        return TABLE["aten.digamma.default"](e, out, x)
    if n == 1:
        return e.cast(_trigamma(formula(e, x, _work_dtype(out))).value, out.dtype)
    x = formula(e, e.cast(x, _work_dtype(out)), torch.float64)  # the reflected part cancels where the function is small
    if not 1 < n <= _LARGEST_ORDER:
        raise Unsupported(f"polygamma of order {n}")
    left = x < 0.5
    total = _zeta_of_positive(n + 1, left.then(1.0 - x, x)) * float((-1) ** (n + 1) * math.factorial(n))
    r = x - x.op("round")
    angle = r * math.pi
    cot = (abs(r) == 0.5).then(0.0, angle.op("cos") / angle.op("sin"))
    derivative = cot * 0.0
    for a in reversed(_cotangent_derivative(n)):
        derivative = derivative * cot + float(a)
    reflected = total * float((-1) ** n) - derivative * math.pi ** (n + 1)
    y = left.then(reflected, total)
    pole = left & (x == x.op("round"))
    return e.cast(pole.then(math.inf if n % 2 else -math.inf, y).value, out.dtype)


# ---- Chebyshev's polynomials, by x = cos(t) inside of [-1, 1] and |x| = cosh(t) outside


def _inside_outside(x):
    return abs(x) <= 1.0, x.op("acos"), abs(x).op("acosh")


def _kind_t(x, n, odd):
    inside, t, a = _inside_outside(x)
    grown = (a * n).op("cosh")
    y = inside.then((t * n).op("cos"), (odd & (x < 0.0)).then(-grown, grown))
    return (abs(x) == 1.0).then((odd & (x < 0.0)).then(x * 0.0 - 1.0, 1.0), y), x


def _kind_u(x, n, odd):
    inside, t, a = _inside_outside(x)
    m = n + 1.0
    grown = (a * m).op("sinh") / a.op("sinh")
    y = inside.then((t * m).op("sin") / t.op("sin"), (odd & (x < 0.0)).then(-grown, grown))
    return (abs(x) == 1.0).then((odd & (x < 0.0)).then(-m, m), y), x * 2.0


def _half_angles(x, n):
    inside, t, a = _inside_outside(x)
    m = n + 0.5
    return inside, t, t * m, (a * m).op("cosh") / (a * 0.5).op("cosh"), (a * m).op("sinh") / (a * 0.5).op("sinh")


def _kind_v(x, n, odd):
    inside, t, tm, even_ratio, odd_ratio = _half_angles(x, n)
    below = odd.then(-odd_ratio, odd_ratio)
    y = inside.then(tm.op("cos") / (t * 0.5).op("cos"), (x > 0.0).then(even_ratio, below))
    at_minus_one = n * 2.0 + 1.0
    return (x == 1.0).then(1.0, (x == -1.0).then(odd.then(-at_minus_one, at_minus_one), y)), x * 2.0 - 1.0


def _kind_w(x, n, odd):
    inside, t, tm, even_ratio, odd_ratio = _half_angles(x, n)
    below = odd.then(-even_ratio, even_ratio)
    y = inside.then(tm.op("sin") / (t * 0.5).op("sin"), (x > 0.0).then(odd_ratio, below))
    at_minus_one = odd.then(x * 0.0 - 1.0, 1.0)
    return (x == 1.0).then(n * 2.0 + 1.0, (x == -1.0).then(at_minus_one, y)), x * 2.0 + 1.0


def _lower_chebyshev(kind, shifted):
    def lower(e, out, x, n):
        x, n = formula(e, x, torch.float64), formula(e, n, torch.float64).op("trunc")
        if shifted:
            x = x * 2.0 - 1.0
        odd = n.op("remainder", 2.0) == 1.0
        y, first = kind(x, n, odd)
        y = (n < 0.0).then(0.0, (n == 0.0).then(1.0, (n == 1.0).then(first, y)))
        return e.cast(y.value, out.dtype)

    return lower


for _letter, _kind in (("t", _kind_t), ("u", _kind_u), ("v", _kind_v), ("w", _kind_w)):
    for _shifted, _prefix in ((False, ""), (True, "shifted_")):
        for _overload in ("default", "x_scalar", "n_scalar"):
            TABLE[f"aten.special_{_prefix}chebyshev_polynomial_{_letter}.{_overload}"] = _lower_chebyshev(_kind, _shifted)
