# SPDX-License-Identifier: Apache-2.0
"""dtypes by name: "f32"; numpy's names, dtypes and Python's number types stand for them, too."""

from .. import _core
from .errors import error

CODES = _core.dtypes
NAMES = {code: name for name, code in CODES.items()}
_KINDS = {code: _core.dtype_class(code) for code in NAMES}
_OTHERS = {
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float64": "f64",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
    "complex64": "c64",
    "complex128": "c128",
    "bool_": "bool",
}
_PYTHON = {float: "f32", int: "i64", bool: "bool", complex: "c64"}


def code_of(dtype):
    """The number of a dtype given by name, by Python's type, or by another library's object."""
    if isinstance(dtype, type) and dtype in _PYTHON:
        return CODES[_PYTHON[dtype]]
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", None) or getattr(dtype, "__name__", str(dtype))
    name = name.rpartition(".")[2]
    found = CODES.get(name) or CODES.get(_OTHERS.get(name, ""))
    if not found:
        raise error("TSR-F080", f"'{dtype}' is no dtype", f"dtypes are {', '.join(CODES)}, or numpy's names for them")
    return found


def is_float(code):
    return _KINDS[code] == "float"


def is_complex(code):
    return _KINDS[code] == "complex"


def is_integer(code):
    return _KINDS[code] in ("int", "uint")


def is_bool(code):
    return _KINDS[code] == "bool"


def floating(code):
    """The dtype of a function of real numbers: integers and truth values become f32."""
    return code if is_float(code) or is_complex(code) else CODES["f32"]


def scalar_kind(value):
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int"
    return "complex" if isinstance(value, complex) else "float"


def promote(op, tensors, scalars=()):
    """The dtype that tensors (code, rank) and kinds of numbers promote to, by PyTorch's rules."""
    found = _core.result_type(tensors, scalars)
    if not found:
        kinds = [NAMES[d] for d, _ in tensors] + list(scalars)
        raise error("TSR-F010", f"{op}: {' and '.join(kinds)} have no common type", "convert one with .astype(dtype)")
    return found
