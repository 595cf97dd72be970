# SPDX-License-Identifier: Apache-2.0
"""What torch.compile(mode=..., options=...) may say, and what becomes of it."""

import difflib
import json

from .. import _core
from ..model import _values

# Ours, with their defaults and what they do.
OPTIONS = {
    "fallback": ("aten", "what is not taken: 'aten' runs it through ATen, 'error' refuses to compile"),
    "verify": (False, "True: every region's results are compared with ATen's, and the first that differs is an error"),
    "mode": (None, "as torch.compile(mode=...), which PyTorch does not take beside options"),
    "config": (None, "the name or path of a config of Tessera's; None: by the mode"),
    "freezing": (None, "True: parameters are constants, folded and packed when compiling; they must not change afterwards"),
    "activation_memory_budget": (
        None,
        "0 to 1: of what forward keeps for backward, the part that it may keep; the rest is computed again",
    ),
    "set": ((), "overrides of the config, as a dict or 'key=value' texts"),
}
# Inductor's names for what Tessera has too.
INDUCTOR = {
    "max_autotune": lambda on: {"mode": "max-autotune"} if on else {},
    "coordinate_descent_tuning": lambda on: {"coordinate_descent_tuning": bool(on)},
    "deterministic": lambda on: {},  # always
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
    return {**{name: text for name, (_, text) in OPTIONS.items()}, **{name: "as Inductor's" for name in INDUCTOR}}


def list_mode_options(mode=None):
    """What each mode sets, or one of them."""
    modes = {m["name"]: m for m in json.loads(_core.modes())["modes"]}
    modes[VERIFY] = {"name": VERIFY, "help": OPTIONS["verify"][1], "sets": {"verify": True}}
    if mode is None:
        return modes
    if mode not in modes:
        raise refused_mode(mode)
    return modes[mode]


def refuse(message, hint):
    error = _core.UserError(f"error[TSR-F061] {message}\n  hint: {hint}")
    error.code, error.message, error.hint = "TSR-F061", message, hint
    return error


def refused_mode(mode):
    return refuse(f"the backend 'tessera' has no mode {mode!r}" + _meant(str(mode), MODES), f"it has: {', '.join(MODES)}")


def _meant(name, known):
    near = difflib.get_close_matches(name, known, 1)
    return f"; did you mean '{near[0]}'?" if near else ""


def parsed(mode, options):
    """(our options by name, overrides of the config as texts)"""
    chosen = {name: default for name, (default, _) in OPTIONS.items()}
    extra = {}
    for name, value in (options or {}).items():
        if name in chosen:
            chosen[name] = value
            if name == "freezing" and value is not None:
                extra["freezing"] = bool(value)
        elif name in INDUCTOR:
            extra.update(INDUCTOR[name](value))
        else:
            known = sorted([*OPTIONS, *INDUCTOR])
            raise refuse(
                f"torch.compile(options=...): the backend 'tessera' has no option {name!r}" + _meant(str(name), known),
                f"it has: {', '.join(known)}",
            )
    if chosen["fallback"] not in ("aten", "error"):
        raise refuse(f"option 'fallback' is {chosen['fallback']!r}", "expected 'aten' or 'error'")
    if not isinstance(chosen["verify"], bool):
        raise refuse(f"option 'verify' is {chosen['verify']!r}", "expected True or False")
    budget = chosen["activation_memory_budget"]
    if budget is not None and (isinstance(budget, bool) or not isinstance(budget, (int, float)) or not 0 <= budget <= 1):
        raise refuse(
            f"option 'activation_memory_budget' is {budget!r}", "expected a number from 0 (keep least) to 1 (keep all)"
        )
    mode = chosen["mode"] if mode is None else mode
    if mode is not None:
        if mode not in MODES:
            raise refused_mode(mode)
        if mode == VERIFY:
            chosen["verify"] = True
        else:
            extra["mode"] = mode
    return chosen, (*_values(extra), *_values(chosen["set"]))
