# SPDX-License-Identifier: Apache-2.0
"""Errors of the Python client, with code, message and hint as the library's have them."""

from .. import _core


def error(code, message, hint=""):
    text = f"error[{code}] {message}" + (f"\n  hint: {hint}" if hint else "")
    made = _core.UserError(text)
    made.code, made.message, made.hint = code, message, hint
    return made


def escaped(what="a tensor made while a function was traced is used after the trace ended"):
    return error("TSR-F001", what, "return it from the compiled function instead of storing it outside")
