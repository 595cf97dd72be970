# SPDX-License-Identifier: Apache-2.0
"""options={"activation_memory_budget": ...}: what forward keeps for backward, and that gradients stay what they are."""

import contextlib
import itertools
import json
import random
import re
import subprocess
import sys
import unittest
import unittest.mock

import torch
import torch.nn as nn
import torch.nn.functional as F

from tessera import _core, pytorch
from tessera.pytorch import backend, recompute
from tessera.pytorch.recompute import Problem, by_the_core, choose

BUDGETS = (1.0, 0.9, 0.5, 0.3, 0.1, 0)


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.norm, self.b = nn.Linear(8, 32), nn.LayerNorm(32), nn.Linear(32, 8)

    def forward(self, x):
        for _ in range(2):
            y = F.dropout(F.gelu(self.norm(self.a(x))), 0.3)
            x = x + F.dropout(torch.sigmoid(self.b(y)) * x, 0.2)
        return x.softmax(-1).transpose(0, 1)


class Wide(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(256, 1024), nn.Linear(1024, 256)

    def forward(self, x):
        return x + self.b(F.gelu(self.a(x)))


class TwoResults(nn.Module):
    """One is as large as the other where x has six rows."""

    def __init__(self):
        super().__init__()
        self.network, self.weight = Network(), nn.Parameter(torch.randn(8, 6))

    def forward(self, x):
        return self.weight.tanh(), self.network(x)


def print_peaks(budget, passes):
    """Bytes at the peak of a step: planned and reached. passes: of the halves, those of the config ("default"), or "fuse" alone,
    as a joint graph is planned."""
    lines = []

    def noted(*arguments):
        found = by_the_core(*arguments)
        lines.append(found[1])
        return found

    choice = pytorch._partition_fn

    def predicted(config, overrides, *more):  # measured costs would choose another plan on another day
        return choice(config, (*overrides, 'partitioner.costs="predicted"'), *more)

    def with_passes(mode, options):
        chosen, overrides = pytorch.options.parsed(mode, options)
        return chosen, overrides if passes == "default" else (*overrides, 'pipeline.passes=["fuse"]', "pipeline.joint=[]")

    m, x = nn.Sequential(*(Wide() for _ in range(6))), torch.randn(512, 256)
    f = torch.compile(lambda x: m(x).square().sum(), backend=backend, options={"activation_memory_budget": budget})
    with (
        unittest.mock.patch.object(recompute, "by_the_core", noted),
        unittest.mock.patch.object(pytorch, "_partition_fn", predicted),
        unittest.mock.patch.object(pytorch, "parsed", with_passes),
    ):
        f(x).backward()
    m.zero_grad(set_to_none=True)
    _core.memory_peak("cpu", True)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as seen:
        loss = f(x)
        _core.memory_peak("cpu", True)
        loss.backward()
    of_pytorch = now = 0  # results and what is kept
    events = [e for e in seen.profiler.kineto_results.events() if e.name() == "[memory]"]
    for e in sorted(events, key=lambda e: e.start_ns()):
        now += e.nbytes()
        of_pytorch = max(of_pytorch, now)
    print(re.search(r"a step takes (\d+) at its peak", lines[-1])[1], of_pytorch + _core.memory_peak("cpu"))


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(8, 24), nn.Linear(8, 24), nn.Linear(24, 8)

    def forward(self, x):
        return x + self.c(F.dropout(F.silu(self.a(x)) * self.b(x), 0.2))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        return x + self.out(F.dropout((q @ k.T / 3).softmax(-1), 0.1) @ v)


class Llama(nn.Module):
    """The second half of its block: 3-d products, and a norm of which a part may run again."""

    def __init__(self):
        super().__init__()
        self.norm = nn.Parameter(torch.rand(8))
        self.a, self.b, self.c = (nn.Linear(*sizes, bias=False) for sizes in ((8, 24), (8, 24), (24, 8)))

    def forward(self, x):
        y = self.norm * (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6))
        return x + self.c(F.silu(self.a(y)) * self.b(y))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        y = x
        for _ in range(4):
            y = F.dropout(torch.tanh(self.a(x) + self.b(y)), 0.1)
        return y


def sequence(*parts):
    return nn.Sequential(*parts)


# What they draw at random is not computed again; whatever else is must have the bits of the first time.
WITH_DROPOUT = {
    "network": Network,
    "gated": lambda: sequence(Gated(), Gated()),
    "attention": lambda: sequence(Attention(), Attention()),
    "recurrent": Recurrent,
    "gelu": lambda: sequence(nn.Linear(8, 32), nn.GELU(), nn.Dropout(0.2), nn.Linear(32, 8)),
    "tanh": lambda: sequence(nn.Linear(8, 16), nn.Tanh(), nn.Dropout(0.3), nn.Linear(16, 16), nn.GELU("tanh"), nn.Linear(16, 8)),
    "norm": lambda: sequence(nn.LayerNorm(8), nn.Linear(8, 16), nn.Dropout(0.1), nn.Softplus(), nn.LayerNorm(16), nn.Linear(16, 8)),
    "mish": lambda: sequence(nn.Linear(8, 16), nn.Mish(), nn.Dropout(0.1), nn.Linear(16, 8), nn.ELU(), nn.Linear(8, 8)),
    "groups": lambda: sequence(nn.Unflatten(1, (2, 4)), nn.GroupNorm(2, 2), nn.SiLU(), nn.Dropout(0.2), nn.Flatten(), nn.Linear(8, 8)),
    "softmax": lambda: sequence(nn.Linear(8, 8), nn.Softmax(-1), nn.Dropout(0.1), nn.Linear(8, 8), nn.Sigmoid(), nn.Linear(8, 8)),
}


class Drawn(Problem):
    """A random problem of which every plan can be tried."""

    def __init__(self, seed):
        draw = random.Random(seed)
        self.nodes = list(range(draw.randrange(3, 9)))
        self.node_of = {n: n for n in self.nodes}
        self.reads = {n: draw.sample(range(n), min(n, draw.randrange(3))) for n in self.nodes}
        self.bytes = {n: draw.randrange(1, 50) for n in self.nodes}
        self.cost = {n: draw.randrange(1, 50) for n in self.nodes}
        self.read = {n for n in self.nodes if draw.random() < 0.4}
        self.once = {n for n in self.nodes if draw.random() < 0.15}
        self.again = {n for n in self.nodes if n not in self.once and draw.random() < 0.15}

    def inputs(self, node):
        return self.reads[node]

    def _is_pair(self, value):
        return False

    def allowed(self):
        """Every set of nodes that may run again, and with it what nobody may keep."""
        for chosen in itertools.product((False, True), repeat=len(self.nodes)):
            recomputed = {n for n in self.nodes if chosen[n]}
            if recomputed & self.once:
                continue
            needed = self.read.union(*(self.reads[n] for n in recomputed))
            if not (needed & self.again) - recomputed:
                yield self.plan(recomputed)


class Budget(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(4)
        torch._dynamo.reset()
        pytorch.reset()

    def gradients(self, m, x, **options):
        torch._dynamo.reset()
        torch.manual_seed(6)
        y = torch.compile(m, backend=backend, options=options or None)(x)
        return torch.autograd.grad(y.square().sum(), list(m.parameters()))

    def test_dropout_is_right_at_every_budget(self):
        m, x = Network(), torch.randn(16, 8)
        torch.manual_seed(6)
        expected = torch.autograd.grad(m(x).square().sum(), list(m.parameters()))
        for budget in BUDGETS:
            torch.testing.assert_close(self.gradients(m, x, activation_memory_budget=budget), expected)

    def test_what_reads_a_buffer_that_is_written_runs_once(self):
        m = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3))
        x, state = torch.randn(2, 3, 8, 8), {k: v.clone() for k, v in m.state_dict().items()}
        gradients = []
        for budget in (1.0, 0.5, 0, "1 GiB"):
            torch._dynamo.reset()
            m.load_state_dict(state)
            m.zero_grad(set_to_none=True)
            f = torch.compile(m, backend=backend, fullgraph=True, options={"activation_memory_budget": budget})
            f(x).square().mean().backward()
            gradients.append([p.grad.clone() for p in m.parameters()] + [m[1].running_mean.clone()])
        for other in gradients[1:]:
            for a, b in zip(gradients[0], other):
                self.assertTrue(torch.equal(a, b))

    def test_bits_do_not_depend_on_the_budget(self):
        m, x = Network(), torch.randn(16, 8)
        first = self.gradients(m, x, config="eager", activation_memory_budget=1)
        for budget in BUDGETS[1:]:
            found = self.gradients(m, x, config="eager", activation_memory_budget=budget)
            self.assertTrue(all(map(torch.equal, found, first)), budget)

    def test_ten_models_with_dropout_have_the_bits_of_budget_1(self):
        for name, make in WITH_DROPOUT.items():
            m, x = make(), torch.randn(16, 8)
            first = self.gradients(m, x, activation_memory_budget=1.0)
            for budget in BUDGETS[1:]:
                found = self.gradients(m, x, activation_memory_budget=budget)
                self.assertTrue(all(map(torch.equal, found, first)), (name, budget))

    def test_budgets_in_bytes_are_those_of_the_peak(self):
        m, x, plans = sequence(Gated(), Network()), torch.randn(64, 8), []

        def planned(*arguments):
            found = by_the_core(*arguments)
            plans.append((found[0], json.loads(re.search(r"bytes: a step takes (\d+) at its peak", found[1])[1])))
            return found

        with unittest.mock.patch.object(recompute, "by_the_core", planned):
            first = self.gradients(m, x, activation_memory_budget="1 GiB")
            roomy, most = plans[-1]
            self.gradients(m, x, activation_memory_budget="2 GiB")  # a budget that is met anyway changes nothing
            self.assertEqual((plans[-1][0].kept, plans[-1][0].cost, plans[-1][1]), (roomy.kept, roomy.cost, most))
            least = most * 9 // 10
            found = self.gradients(m, x, activation_memory_budget=f"{least} B")
            self.assertLessEqual(plans[-1][1], least)
            self.assertGreater(plans[-1][0].cost, roomy.cost)
            self.assertTrue(all(map(torch.equal, found, first)))
            with self.assertRaisesRegex(Exception, "TSR-A010.*does not fit.* the smallest peak .* is [0-9]+ bytes"):
                self.gradients(m, x, activation_memory_budget="1 KiB")

    def test_the_peak_that_is_planned_is_the_one_that_is_reached(self):
        for budget in ("1 GiB", "30 MiB"):  # each in a process of its own, in which no arena of another program is kept
            for passes in ("fuse", "default"):  # the config's find what the plan does not know, and hold less
                command = [sys.executable, __file__, "--peaks", budget, passes]
                p = subprocess.run(command, capture_output=True, text=True, check=True)
                planned, reached = map(int, p.stdout.split()[-2:])
                self.assertLessEqual(reached, planned * 1.01)
                if passes == "fuse":
                    self.assertGreaterEqual(reached, planned * 0.99)

    @staticmethod
    @contextlib.contextmanager
    def kept_by_halves():
        """The bytes that each division of a joint graph keeps for backward, inputs and results aside."""
        kept, divide = [], recompute.partitioners.default_partition

        def divided(joint, inputs, *, num_fwd_outputs, **kwargs):
            halves = divide(joint, inputs, num_fwd_outputs=num_fwd_outputs, **kwargs)
            outputs = list(halves[0].graph.output_node().args[0])
            saved = {n for n in outputs[num_fwd_outputs:] if n.op == "call_function" and n not in outputs[:num_fwd_outputs]}
            kept.append(sum(recompute.bytes_at_hints(n.meta["val"]) for n in saved))
            return halves

        with unittest.mock.patch.object(recompute.partitioners, "default_partition", divided):
            yield kept

    def test_forward_keeps_what_the_plan_says(self):
        # PyTorch's partitioner follows the marks: what leaves the forward half is what the plan keeps.
        m, x, plans = Network(), torch.randn(16, 8), []

        def chosen(problem, budget):
            found = choose(problem, budget)
            plans.append((found[0].kept, found[1]))
            return found

        with unittest.mock.patch.object(recompute, "choose", chosen), self.kept_by_halves() as kept:
            for budget in BUDGETS:
                self.gradients(m, x, activation_memory_budget=budget)
        self.assertEqual([p for p, _ in plans], kept)
        self.assertTrue(all(p <= allowed for p, allowed in plans))
        self.assertEqual(kept, sorted(kept, reverse=True))
        self.assertLess(kept[-1], kept[0] / 2)

    def test_a_share_on_a_gpu_is_one_of_what_pytorch_keeps(self):
        m, x, limits = sequence(Llama(), Llama(), Llama()), torch.randn(4, 16, 8), []
        choice, share = pytorch._partition_fn, recompute.by_the_core_for_a_share

        def as_on_a_gpu(config, overrides, context, budget, _):
            return choice(config, (*overrides, 'partitioner.costs="predicted"'), context, budget, True)

        def limited(joint, problem, planning, allowed):
            limits.append(allowed)
            return share(joint, problem, planning, allowed)

        with (
            unittest.mock.patch.object(pytorch, "_partition_fn", as_on_a_gpu),
            unittest.mock.patch.object(recompute, "by_the_core_for_a_share", limited),
            self.kept_by_halves() as kept,
        ):
            gradients = [self.gradients(m, x, activation_memory_budget=b) for b in (1.0, 0.5, 0)]
        for found in gradients[1:]:
            self.assertTrue(all(map(torch.equal, found, gradients[0])))
        self.assertEqual([limits[1], limits[2]], [limits[0] // 2, 0])
        self.assertTrue(all(k <= allowed for k, allowed in zip(kept[:2], limits)), (kept, limits))
        self.assertTrue(kept[0] > kept[1] > kept[2], kept)  # reshapes of products are no place to keep them

    def test_no_plan_is_better_at_a_price(self):
        for seed in range(40):
            problem = Drawn(seed)
            for price in (0, 1, 3, 1000):
                value, plan = problem.solve(price)
                best = min(p.cost + price * p.kept for p in problem.allowed())
                self.assertEqual((plan.cost + price * plan.kept, value), (best, best), (seed, price))

    def test_plans_keep_to_the_budget_and_their_bound_holds(self):
        for seed in range(40):
            problem = Drawn(seed)
            for budget in BUDGETS:
                plan, allowed, (least, most), gap = choose(problem, budget)
                self.assertLessEqual(plan.kept, allowed)
                self.assertEqual((least, most), (min(p.kept for p in problem.allowed()), problem.solve(0)[1].kept))
                best = min(p.cost for p in problem.allowed() if p.kept <= allowed)
                self.assertLessEqual(plan.cost - gap, best + 1, (seed, budget))

    def test_sizes_that_change(self):
        choice = pytorch._partition_fn

        def as_on_a_gpu(config, overrides, context, budget, _):
            return choice(config, overrides, context, budget, True)

        for budget, partition in ((0.3, choice), ("1 GiB", choice), (None, as_on_a_gpu)):
            torch._dynamo.reset()
            pytorch.reset()
            m, graphs = TwoResults(), []
            with self.subTest(budget=budget), unittest.mock.patch.object(pytorch, "_partition_fn", partition):
                f = torch.compile(m, backend=backend, options={"activation_memory_budget": budget} if budget else None)
                for n in (4, 6, 9):
                    x = torch.randn(n, 8)
                    found, expected = [], []
                    for g, into in ((f, found), (m, expected)):
                        torch.manual_seed(n)
                        into.extend(torch.autograd.grad(sum(y.square().sum() for y in g(x)), list(m.parameters())))
                    torch.testing.assert_close(found, expected)
                    graphs.append(len(pytorch.REPORT.graphs))
                self.assertEqual(graphs, [2, 4, 4])  # what operators cost at the first sizes is no reason to compile again

    def test_other_values_are_refused(self):
        for value in (2, -0.1, "3 gigs", True):
            with self.assertRaisesRegex(Exception, "TSR-F061.*activation_memory_budget"):
                self.gradients(Network(), torch.randn(2, 8), activation_memory_budget=value)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--peaks"]:
        print_peaks(*sys.argv[2:])
    else:
        unittest.main()
