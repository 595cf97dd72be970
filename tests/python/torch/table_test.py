# SPDX-License-Identifier: Apache-2.0
"""The table of operators: every operator of ATen's core set is lowered or named with a reason, and docs/aten_mapping.md says
the same."""

import pathlib
import re
import unittest

import torch

from tessera.pytorch.ops import NOT_TAKEN, TABLE

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "aten_mapping.md"


def core():
    for name in dir(torch.ops.aten):
        packet = getattr(torch.ops.aten, name)
        for overload in packet.overloads() if hasattr(packet, "overloads") else ():
            op = getattr(packet, overload)
            if torch.Tag.core in op.tags:
                yield str(op)


class Table(unittest.TestCase):
    def test_every_core_operator_is_lowered_or_named(self):
        self.assertEqual([op for op in core() if op not in TABLE and op not in NOT_TAKEN], [])

    def test_nothing_is_both(self):
        self.assertEqual([op for op in NOT_TAKEN if op in TABLE], [])

    def test_what_is_named_exists(self):
        known = set(core())
        self.assertEqual([op for op in NOT_TAKEN if op not in known], [])

    def test_the_page_lists_what_is_lowered(self):
        listed = set(re.findall(r"^\| (\w+)", PAGE.read_text(), re.M))
        known = set(core())
        self.assertEqual([op for op in TABLE if op in known and op.split(".")[1] not in listed], [])


if __name__ == "__main__":
    unittest.main()
