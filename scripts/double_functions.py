#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the coefficients of sdk/kit/include/tessera/kit/double_functions.hpp, or with --points the values that
tests/kit/double_functions_test.cpp has. It needs mpmath.

Each polynomial is the one whose largest error on its interval is least (E. Remez 1934), its coefficients from the highest power
down. The error stands before it.
"""

import sys

import mpmath as mp

mp.mp.dps = 50
TOP, NARROW_TOP = mp.mpf("27.25"), mp.mpf("10.1")  # of erfc for f64 and for f32: beyond, the result is 0


def minimax(f, weight, low, high, degree):
    """The polynomial p that makes the largest |p - f| weight least, from the constant up, and that error."""
    low, high, points = mp.mpf(low), mp.mpf(high), degree + 2
    grid = [(low + high) / 2 - (high - low) / 2 * mp.cos(mp.pi * i / (24 * points)) for i in range(24 * points + 1)]
    values, weights = [f(x) for x in grid], [weight(x) for x in grid]
    at = [round(24 * points * i / mp.mpf(points - 1)) for i in range(points)]
    for _ in range(40):
        rows = [[grid[i] ** k for k in range(degree + 1)] + [(-1) ** n / weights[i]] for n, i in enumerate(at)]
        solved = mp.lu_solve(mp.matrix(rows), mp.matrix([values[i] for i in at]))
        p, level = list(solved[: degree + 1]), abs(solved[degree + 1])
        errors = [(mp.polyval(p[::-1], x) - v) * w for x, v, w in zip(grid, values, weights)]
        extremes = [0]  # the largest error of each stretch of one sign
        for i in range(1, len(errors)):
            if (errors[i] > 0) != (errors[extremes[-1]] > 0):
                extremes.append(i)
            elif abs(errors[i]) > abs(errors[extremes[-1]]):
                extremes[-1] = i
        while len(extremes) > points:
            extremes.pop(0 if abs(errors[extremes[0]]) < abs(errors[extremes[-1]]) else -1)
        largest = max(abs(e) for e in errors)
        if len(extremes) < points or largest < level * mp.mpf("1.001"):
            break
        at = extremes
    return p, largest


def scaled_erfc(a, scale):
    """scale(a) exp(a^2) erfc(a)"""
    if a < 40:
        return scale(a) * mp.exp(a * a) * mp.erfc(a)
    terms = [(-1) ** k * mp.fac2(2 * k - 1) / (2 * a * a) ** k for k in range(20)]
    return scale(a) * sum(terms) / (a * mp.sqrt(mp.pi))


def tail(scale, top, degree):
    end = (top - 3) / (top + 3)
    f = lambda t: scaled_erfc(3 * (1 + t) / (1 - t), scale)
    return minimax(f, lambda t: 1 / f(t), -1, end, degree)


def near_one(a):
    """Coefficients of few bits that make the function nearly 1: near its slope at 0 and its first two terms at infinity."""
    return (1 + a * (mp.mpf(227) / 128 + a * mp.mpf(73) / 64)) / (1 + a * mp.mpf(41) / 64)


def exponential(r):
    """(exp(r) - 1 - r) / r^2"""
    return sum(r**k / mp.factorial(k + 2) for k in range(30))


def show(name, text, fit, low=False):
    p, error = fit
    print(f"// {text}: {mp.nstr(error, 2)}\n{name}: " + ", ".join(f"{float(x)!r}" for x in p[::-1]))
    if low:
        print(f"what the rounding of the constant leaves: {float(p[0] - mp.mpf(float(p[0])))!r}")


def points():
    """Rows of x, the nearest f64 of the function, and what that leaves in units of the last place."""
    of_erfc = [
        -6, -5.5, -2.25, -1, -0.75, -0.46875, -0.1, -1e-3, -1e-20, 1e-20, 1e-9, 0.01, 0.25, 0.476936276204469, 0.5, 0.84375, 1,
        1.2019, 1.25, 1.5, 2, 2.857142857142857, 3, 4.25, 6, 9.5, 14, 20.25, 25.68, 26.25, 26.5, 26.543, 26.6, 26.9, 27, 27.2,
        27.22,
    ]
    of_cbrt = [
        5e-324, 1.5e-320, -3e-310, 2.2250738585072014e-308, 1e-300, -1e-100, 1e-5, 0.125, 0.3, 0.5, 0.99999999999999989, 1,
        1.0000000000000002, 2, -3, 5.5, 7.9999999999999991, 8, 10, 27, 1000.5, -1e15, 123456789012345680, 1e100, 1e300,
        1.7976931348623157e308,
    ]
    for name, f, numbers in (("erfc", mp.erfc, of_erfc), ("cbrt", lambda x: mp.sign(x) * mp.cbrt(abs(x)), of_cbrt)):
        print(name)
        for x in numbers:
            value = f(mp.mpf(x))
            nearest = float(value)
            unit = mp.mpf(2) ** max(mp.frexp(abs(mp.mpf(nearest)))[1] - 53, -1074)
            print(f"    {{{float(x).hex()}, {nearest.hex()}, {float((value - mp.mpf(nearest)) / unit):.4f}}},")


def main():
    if sys.argv[1:] == ["--points"]:
        return points()
    half = mp.log(2) / 2
    show("erfc", "(1 + a (227 / 128 + a 73 / 64)) / (1 + a 41 / 64) exp(a^2) erfc(a) of t = (a - 3) / (a + 3), relative",
         tail(near_one, TOP, 24), low=True)
    show("narrow erfc", "(1 + 2 a) exp(a^2) erfc(a) of the same, for f32, relative", tail(lambda a: 1 + 2 * a, NARROW_TOP, 14))
    show("exp", "(exp(r) - 1 - r) / r^2, relative to exp(r)",
         minimax(exponential, lambda r: r * r * mp.exp(-r) + mp.mpf("1e-12"), -half, half, 10))
    show("narrow exp", "likewise, for f32", minimax(exponential, lambda r: r * r * mp.exp(-r) + mp.mpf("1e-9"), -half, half, 6))
    show("cbrt", "m^(-1/3) of m in [1/2, 4], relative",
         minimax(lambda m: m ** (-mp.mpf(1) / 3), lambda m: m ** (mp.mpf(1) / 3), mp.mpf(1) / 2, 4, 7))


if __name__ == "__main__":
    main()
