# SPDX-License-Identifier: Apache-2.0
"""What torch.compile(mode=..., options=...) may say, and what becomes of it."""

import difflib
import json
import re

from .. import _core
from ..model import _values

def _is_bool(value):
    return isinstance(value, bool)


def _is_text_or_none(value):
    return value is None or isinstance(value, str)


def _is_budget_or_none(value):
    if isinstance(value, str):
        return re.fullmatch(r"\s*\d+(\.\d+)?\s*([kKMGT]i?)?B\s*", value) is not None
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1)


def _is_overrides(value):
    if isinstance(value, dict):
        return all(isinstance(key, str) for key in value)
    return isinstance(value, (list, tuple)) and all(isinstance(text, str) and "=" in text for text in value)


# Ours: their defaults, what they may be, as a check and in words, and what they do.
OPTIONS = {
    "fallback": (
        "aten",
        lambda value: value in ("aten", "error"),
        "'aten' or 'error'",
        "what is not taken: 'aten' runs it through ATen, 'error' refuses to compile",
    ),
    "verify": (
        False,
        _is_bool,
        "True or False",
        "True: every region's results are compared with ATen's, and the first that differs is an error",
    ),
    "mode": (
        None,
        _is_text_or_none,
        "the name of a mode",
        "as torch.compile(mode=...), which PyTorch does not take beside options",
    ),
    "config": (
        None,
        _is_text_or_none,
        "a name or a path",
        "the name or path of a config of Tessera's; None: by the mode",
    ),
    "freezing": (
        None,
        lambda value: value is None or _is_bool(value),
        "True or False",
        "True: parameters are constants, folded and packed when compiling; a call after they changed is an error",
    ),
    "pack_weights": (
        False,
        _is_bool,
        "True or False",
        "True: on the third call with equal versions weights are packed, until a write raises a version",
    ),
    "activation_memory_budget": (
        None,
        _is_budget_or_none,
        'a number from 0 (keep least) to 1 (keep all), or bytes as text ("3 GiB")',
        "of what forward keeps for backward, the part that it may keep, or the memory of a step at its peak as text; the rest is "
        "computed again",
    ),
    "set": (
        (),
        _is_overrides,
        "a dict, or a list of 'key=value' texts",
        "overrides of the config, as a dict or 'key=value' texts",
    ),
}
# Inductor's names for what Tessera has too: what they set, when True and when False.
INDUCTOR = {
    "max_autotune": ({"mode": "max-autotune"}, {}),
    "coordinate_descent_tuning": ({"coordinate_descent_tuning": True}, {"coordinate_descent_tuning": False}),
    "deterministic": ({"deterministic": True}, {"deterministic": False}),
}
VERIFY = "verify"
MODES = (
    "default",
    "reduce-overhead",
    "max-autotune",
    "max-autotune-no-cudagraphs",
    "lite",
    "eager",
    "aot_eager",
    VERIFY,
)


def list_options():
    """The options that torch.compile(options=...) takes with this backend."""
    return {**{name: option[-1] for name, option in OPTIONS.items()}, **{name: "as Inductor's" for name in INDUCTOR}}


def list_mode_options(mode=None):
    """What each mode sets, or one of them."""
    modes = {m["name"]: m for m in json.loads(_core.modes())["modes"]}
    modes[VERIFY] = {"name": VERIFY, "help": OPTIONS["verify"][-1], "sets": {"verify": True}}
    if mode is None:
        return modes
    if mode not in modes:
        raise refused_mode(mode)
    return modes[mode]


def refuse(message, hint, code="TSR-F061"):
    error = _core.UserError(f"error[{code}] {message}\n  hint: {hint}")
    error.code, error.message, error.hint = code, message, hint
    return error


def refused_mode(mode):
    return refuse(f"the backend 'tessera' has no mode {mode!r}" + _meant(str(mode), MODES), f"it has: {', '.join(MODES)}")


def _meant(name, known):
    near = difflib.get_close_matches(name, known, 1)
    return f"; did you mean '{near[0]}'?" if near else ""


def parsed(mode, options):
    """(our options by name, overrides of the config as texts)"""
    chosen = {name: option[0] for name, option in OPTIONS.items()}
    extra = {}
    for name, value in (options or {}).items():
        if name in OPTIONS:
            _, is_valid, expected, _ = OPTIONS[name]
        elif name in INDUCTOR:
            is_valid, expected = _is_bool, "True or False"
        else:
            known = sorted([*OPTIONS, *INDUCTOR])
            raise refuse(
                f"torch.compile(options=...): the backend 'tessera' has no option {name!r}" + _meant(str(name), known),
                f"it has: {', '.join(known)}",
            )
        if not is_valid(value):
            raise refuse(f"option {name!r} is {value!r}", f"expected {expected}")
        if name in INDUCTOR:
            extra.update(INDUCTOR[name][0 if value else 1])
        else:
            chosen[name] = value
    if chosen["freezing"] is not None:
        extra["freezing"] = chosen["freezing"]
    mode = chosen["mode"] if mode is None else mode
    if mode is not None:
        if mode not in MODES:
            raise refused_mode(mode)
        if mode == VERIFY:
            chosen["verify"] = True
        else:
            extra["mode"] = mode
    return chosen, (*_values(extra), *_values(chosen["set"]))
