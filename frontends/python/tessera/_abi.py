# SPDX-License-Identifier: Apache-2.0
"""Numbers of abi.h that Python hands to the module `_core`: kinds of attributes, operators and relations of sizes."""

ATTR = {  # TSR_ATTR_*
    "int": 1,
    "float": 2,
    "bool": 3,
    "str": 4,
    "dtype": 5,
    "dim": 6,
    "ints": 7,
    "floats": 8,
    "dims": 9,
    "strs": 10,
    "tensor": 11,
}
ADD, SUB, MUL, FLOORDIV, MOD, MIN, MAX = range(1, 8)  # TSR_DIM_ADD and what follows it
EQ, NE, LT, LE, GT, GE, DIVISIBLE = range(7)  # tsr_relation
