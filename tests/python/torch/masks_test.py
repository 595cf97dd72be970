# SPDX-License-Identifier: Apache-2.0
"""Attention masks that no input decides: which of them go, and that values and gradients stay."""

import unittest

import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx

from tessera.pytorch import backend
from tessera.pytorch.masks import simplify_masks

ROWS, KEYS, WIDTH = 5, 7, 8


def positions(rows=ROWS, keys=KEYS):
    return torch.arange(rows)[:, None], torch.arange(keys)[None]


def causal(x):
    query, key = positions()
    return key <= query


def causal_by_additions(x):
    query, key = positions()
    return torch.where((key > query).expand(2, 1, ROWS, KEYS), float("-inf"), 0.0)


def causal_by_the_least_number(x):
    query, key = positions()
    return torch.where(key > query, torch.finfo(x.dtype).min, 0.0).to(x.dtype)


def causal_for_cudnn(x):
    query, key = positions()
    return torch.where(key > query, -65504.0, 0.0)


def within_a_document(x):  # of one document: the sums are all equal
    query, key = positions(KEYS, KEYS)
    starts = (torch.diff(torch.arange(KEYS), prepend=torch.tensor([-1])) != 1).cumsum(0)
    return ((key <= query) & (starts[:, None] == starts[None]))[:ROWS]


def nothing_hidden(x):
    return torch.zeros(1, 1, 1, KEYS)


def strictly_before(x):
    query, key = positions()
    return key < query


def windowed(x):
    query, key = positions()
    return (key <= query) & (key > query - 3)


def of_the_input(x):
    return causal(x) & (x[..., :1] < 1e9)


def small_penalty(x):
    query, key = positions()
    return torch.where(key > query, -100.0, 0.0)


def of_random_numbers(x):
    return torch.rand(ROWS, KEYS) < 2


def attends(mask):
    def f(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask(q))

    return f


def tensors():
    torch.manual_seed(0)
    return [torch.randn(2, 3, n, WIDTH, requires_grad=True) for n in (ROWS, KEYS, KEYS)]


class Masks(unittest.TestCase):
    def setUp(self):
        torch._dynamo.reset()

    def attention_after(self, mask):
        """(operator's arguments by name, nodes left) of the graph after its mask was looked at."""
        with torch.no_grad():
            graph = make_fx(attends(mask), tracing_mode="fake")(*tensors())
        simplify_masks(graph)
        (node,) = [n for n in graph.graph.nodes if "_scaled_dot_product_" in str(n.target)]
        arguments = {}
        for k, a in enumerate(node.target._schema.arguments):
            arguments[a.name] = node.kwargs.get(a.name, node.args[k] if k < len(node.args) else a.default_value)
        return arguments, len(graph.graph.nodes)

    def test_causal_masks_go(self):
        for mask in (causal, causal_by_additions, causal_by_the_least_number, causal_for_cudnn, within_a_document):
            with self.subTest(mask.__name__):
                arguments, nodes = self.attention_after(mask)
                self.assertIsNone(arguments["attn_mask"])
                self.assertTrue(arguments["is_causal"])
                self.assertEqual(nodes, 6)  # three inputs, attention, its first result, the output

    def test_a_mask_that_hides_nothing_goes(self):
        arguments, nodes = self.attention_after(nothing_hidden)
        self.assertIsNone(arguments["attn_mask"])
        self.assertFalse(arguments["is_causal"])
        self.assertEqual(nodes, 6)

    def test_every_other_mask_stays(self):
        for mask in (strictly_before, windowed, of_the_input, small_penalty, of_random_numbers):
            with self.subTest(mask.__name__):
                arguments, _ = self.attention_after(mask)
                self.assertIsNotNone(arguments["attn_mask"])
                self.assertFalse(arguments["is_causal"])

    def test_values_and_gradients(self):
        for mask in (causal, causal_by_additions, causal_by_the_least_number, within_a_document, nothing_hidden, windowed):
            with self.subTest(mask.__name__):
                results = []
                for compiled in (False, True):
                    f = attends(mask)
                    f = torch.compile(f, backend=backend, fullgraph=True) if compiled else f
                    x = tensors()
                    y = f(*x)
                    y.square().sum().backward()
                    results.append([y, *(t.grad for t in x)])
                for eager, ours in zip(*results):
                    torch.testing.assert_close(ours, eager, rtol=1e-5, atol=1e-5)

    def test_sizes_of_a_call_leave_it(self):
        def f(q, k, v):
            query, key = torch.arange(q.shape[-2])[:, None], torch.arange(k.shape[-2])[None]
            return F.scaled_dot_product_attention(q, k, v, attn_mask=key <= query)

        compiled = torch.compile(f, backend=backend, fullgraph=True, dynamic=True)
        with torch.no_grad():
            for n in (4, 9, 17):
                x = [torch.randn(2, 3, n, WIDTH) for _ in range(3)]
                torch.testing.assert_close(compiled(*x), f(*x), rtol=1e-5, atol=1e-5)


if __name__ == "__main__":
    unittest.main()
