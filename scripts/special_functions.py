#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints frontends/python/tessera/pytorch/ops/coefficients.py: Chebyshev series of special functions. It needs mpmath.

Each series approximates a function that is smooth on its interval: the function itself, or what is left of it once its growth,
its zeros or its logarithm are taken out (special.py puts them back). The coefficients come from the values at Chebyshev's
nodes in 40 digits; the series ends where what follows is below the rounding of f64.
"""

import mpmath as mp

mp.mp.dps = 40
NODES = 96
R = {k: mp.besseljzero(0, k) ** 2 for k in (1, 2)}
S = {k: mp.besseljzero(1, k) ** 2 for k in (1, 2)}


def series(f, low, high):
    """Coefficients in t = (2 x - low - high) / (high - low), the constant one first."""
    angles = [mp.pi * (j + mp.mpf(1) / 2) / NODES for j in range(NODES)]
    values = [f((low + high) / 2 + (high - low) / 2 * mp.cos(a)) for a in angles]
    c = [2 * sum(v * mp.cos(k * a) for v, a in zip(values, angles)) / NODES for k in range(NODES // 2 + 8)]
    c[0] /= 2
    largest = max(abs(x) for x in c)
    while abs(c[-1]) < largest * mp.mpf("3e-18"):
        c.pop()
    if len(c) > NODES // 2:
        raise ValueError(f"{len(c)} terms")
    return [float(x) for x in c]


def hankel(order, x):
    """P and Q of J + i Y = sqrt(2 / (pi x)) (P + i Q) exp(i (x - (2 order + 1) pi / 4)): P, and x Q."""
    h = (mp.besselj(order, x) + 1j * mp.bessely(order, x)) * mp.sqrt(mp.pi * x / 2)
    h *= mp.exp(-1j * (x - (2 * order + 1) * mp.pi / 4))
    return h.real, h.imag * x


def airy_phase(x):
    """P and Q of Ai(-x) = (P cos(z - pi/4) + Q sin(z - pi/4)) / (sqrt(pi) x^(1/4)), z = 2/3 x^(3/2): P, and z Q."""
    z = mp.mpf(2) / 3 * x ** mp.mpf("1.5")
    scale = mp.sqrt(mp.pi) * x ** mp.mpf("0.25")
    a, b = mp.airyai(-x) * scale, mp.airybi(-x) * scale
    c, s = mp.cos(z - mp.pi / 4), mp.sin(z - mp.pi / 4)
    return a * c - b * s, (a * s + b * c) * z


def normal_tail(t):
    """Of the quantile -x of p = exp(-t^2/2): t (t - log(t) / t - x)."""
    logp = -t * t / 2
    x = t
    for _ in range(60):  # Newton on log of the distribution function
        tail = mp.erfc(x / mp.sqrt(2)) / 2
        step = (mp.log(tail) - logp) / (mp.exp(-x * x / 2) / mp.sqrt(2 * mp.pi) / tail)
        x += step
        if abs(step) < mp.mpf(10) ** -36:
            break
    return t * (t - mp.log(t) / t - x)


def at_x_of_inverse_square(f, scale):
    return lambda z: f(scale / mp.sqrt(z))


def airy_x(u):
    """x where 2/3 x^(3/2) is 2/3 2^(3/2) / u."""
    return 2 / u ** (mp.mpf(2) / 3)


def erfcx(x):
    return mp.exp(x * x) * mp.erfc(x) if x < 60 else mp.nsum(
        lambda k: (-1) ** int(k) * mp.fac2(2 * k - 1) / (2 * x * x) ** int(k), [0, 12]) / (x * mp.sqrt(mp.pi))


log, sqrt, exp = mp.log, mp.sqrt, mp.exp
I, K, J, Y = mp.besseli, mp.besselk, mp.besselj, mp.bessely
TABLE = {
    "I0_SMALL": ("exp(-x) I0(x), in x of [0, 8]", lambda x: exp(-x) * I(0, x), 0, 8),
    "I0_LARGE": ("sqrt(x) exp(-x) I0(x), in 8 / x of [0, 1]", lambda u: sqrt(8 / u) * exp(-8 / u) * I(0, 8 / u), 0, 1),
    "I1_SMALL": ("exp(-x) I1(x) / x, in x of [0, 8]", lambda x: exp(-x) * I(1, x) / x, 0, 8),
    "I1_LARGE": ("sqrt(x) exp(-x) I1(x), in 8 / x of [0, 1]", lambda u: sqrt(8 / u) * exp(-8 / u) * I(1, 8 / u), 0, 1),
    "K0_SMALL": ("K0(x) + log(x / 2) I0(x), in x^2 of [0, 4]", lambda z: K(0, sqrt(z)) + log(sqrt(z) / 2) * I(0, sqrt(z)), 0, 4),
    "K0_LARGE": ("sqrt(x) exp(x) K0(x), in 2 / x of [0, 1]", lambda u: sqrt(2 / u) * exp(2 / u) * K(0, 2 / u), 0, 1),
    "K1_SMALL": (
        "x (K1(x) - log(x / 2) I1(x)), in x^2 of [0, 4]",
        lambda z: sqrt(z) * (K(1, sqrt(z)) - log(sqrt(z) / 2) * I(1, sqrt(z))), 0, 4),
    "K1_LARGE": ("sqrt(x) exp(x) K1(x), in 2 / x of [0, 1]", lambda u: sqrt(2 / u) * exp(2 / u) * K(1, 2 / u), 0, 1),
    "ERFCX": (
        "(1 + 2 x) erfcx(x), in (x - 3.75) / (x + 3.75) of [-1, 1]",
        lambda t: (lambda x: (1 + 2 * x) * erfcx(x))(mp.mpf("3.75") * (1 + t) / (1 - t)), -1, 1),
    "J0_SMALL": (
        "J0(x) / ((x^2 - r1) (x^2 - r2)), in x^2 of [0, 25]", lambda z: J(0, sqrt(z)) / ((z - R[1]) * (z - R[2])), 0, 25),
    "J1_SMALL": (
        "J1(x) / (x (x^2 - s1) (x^2 - s2)), in x^2 of [0, 25]",
        lambda z: J(1, sqrt(z)) / (sqrt(z) * (z - S[1]) * (z - S[2])), 0, 25),
    "Y0_SMALL": (
        "Y0(x) - 2 / pi log(x) J0(x), in x^2 of [0, 25]",
        lambda z: Y(0, sqrt(z)) - 2 / mp.pi * log(sqrt(z)) * J(0, sqrt(z)), 0, 25),
    "Y1_SMALL": (
        "(Y1(x) - 2 / pi (log(x) J1(x) - 1 / x)) / x, in x^2 of [0, 25]",
        lambda z: (Y(1, sqrt(z)) - 2 / mp.pi * (log(sqrt(z)) * J(1, sqrt(z)) - 1 / sqrt(z))) / sqrt(z), 0, 25),
    "P0": ("the cosine's factor of J0, in 25 / x^2 of [0, 1]", at_x_of_inverse_square(lambda x: hankel(0, x)[0], 5), 0, 1),
    "Q0": ("x times the sine's factor of J0, likewise", at_x_of_inverse_square(lambda x: hankel(0, x)[1], 5), 0, 1),
    "P1": ("the cosine's factor of J1, likewise", at_x_of_inverse_square(lambda x: hankel(1, x)[0], 5), 0, 1),
    "Q1": ("x times the sine's factor of J1, likewise", at_x_of_inverse_square(lambda x: hankel(1, x)[1], 5), 0, 1),
    "AIRY_MIDDLE": ("Ai(x), in x of [-5, 2]", mp.airyai, -5, 2),
    "AIRY_RIGHT": (
        "2 sqrt(pi) x^(1/4) exp(2/3 x^(3/2)) Ai(x), in (2 / x)^(3/2) of [0, 1]",
        lambda u: (lambda x: 2 * sqrt(mp.pi) * x ** mp.mpf("0.25") * exp(mp.mpf(2) / 3 * x ** mp.mpf("1.5")) * mp.airyai(x))(
            airy_x(u)), 0, 1),
    "AIRY_P": ("the cosine's factor of Ai(-x), in (5 / x)^3 of [0, 1]", lambda u: airy_phase(5 / mp.cbrt(u))[0], 0, 1),
    "AIRY_Q": ("2/3 x^(3/2) times the sine's factor, likewise", lambda u: airy_phase(5 / mp.cbrt(u))[1], 0, 1),
    "NORMAL_TAIL": ("t (t - log(t) / t - x) of p = exp(-t^2 / 2), in 1 / t of [1/8, 1/2]", lambda u: normal_tail(1 / u),
                    mp.mpf(1) / 8, mp.mpf(1) / 2),
    "NORMAL_FAR": ("likewise, in 1 / t of [1/64, 1/8]", lambda u: normal_tail(1 / u), mp.mpf(1) / 64, mp.mpf(1) / 8),
}


def main():
    print("# SPDX-License-Identifier: Apache-2.0")
    print('"""Chebyshev series of special functions, as scripts/special_functions.py prints them: one list for each."""\n')
    for name, (text, f, low, high) in TABLE.items():
        c = series(f, mp.mpf(low), mp.mpf(high))
        print(f"# {text}\n{name} = [")
        for k in range(0, len(c), 4):
            print("    " + " ".join(f"{x!r}," for x in c[k : k + 4]))
        print("]")
    for name, roots in (("J0_ZEROS", R), ("J1_ZEROS", S)):
        print(f"# the squares of the first two zeros, each as a number of few bits and the rest\n{name} = [")
        for z in roots.values():
            high = mp.mpf(int(z * 2**12)) / 2**12
            print(f"    ({float(high)!r}, {float(z - high)!r}),")
        print("]")


if __name__ == "__main__":
    main()
