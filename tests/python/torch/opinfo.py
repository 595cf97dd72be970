# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own operator tests (OpInfo) against torch.compile(backend="tessera"), on the CPU or on a GPU.

    opinfo.py [--device cpu|cuda] [--samples N] [--dynamic] [--backward] [--part I/N] [--every K] [--only NAME,...]
              [--dtypes f32,...,errors] [--out FILE] [--report FILE...]

For every operator and dtype, the first N samples (0: all) run eagerly and compiled; values are compared as PyTorch's benchmarks
do it, by the distance of both to the result in f64, types and strides exactly (strides as eager has them, or as PyTorch's
capture says where that is something else: counted and named). With --backward, the results' gradients with
respect to every differentiable argument are compared too, for operators and dtypes that PyTorch differentiates. The node
`NAME errors` runs the operator's error inputs, which must raise compiled as they do eagerly. One line of JSON per node goes to
FILE; what stands there already is not run again, so that a run which was stopped goes on. --report prints what a file holds. It
fails when something is wrong that opinfo_expected.txt does not name, or when something that it names passes. It ends with
status 3 when a GPU takes no more work after a node: that node's line says so, and the rest wants a process of its own.
"""

import argparse
import collections
import contextlib
import io
import json
import os
import sys
import time
import warnings

import torch

import tessera
from tessera import pytorch

DTYPES = {
    "f32": torch.float32,
    "f64": torch.float64,
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "i64": torch.int64,
    "bool": torch.bool,
}


AS_CAPTURED = "strides as captured"
ERRORS = "errors"  # stands for a dtype: the operator's error inputs

LOST = 3  # exit status: the GPU takes no more work from this process

# Results whose values are whatever the memory held, by their number: only types and strides are compared.
EVERY = range(sys.maxsize)
UNINITIALISED = {
    "empty": EVERY,
    "empty_like": EVERY,
    "empty_permuted": EVERY,
    "empty_strided": EVERY,
    "new_empty": EVERY,
    "new_empty_strided": EVERY,
    "torch.ops.aten._efficient_attention_forward": (2, 3),  # seed and offset, which are set for dropout alone
    "torch.ops.aten._flash_attention_forward": (2, 3),
}


def nodes(only, dtypes, backward, device):
    from torch.testing._internal.common_methods_invocations import op_db

    for op in op_db:
        name = op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")
        if only and op.name not in only and name not in only:
            continue
        for short in dtypes:
            if backward:
                if short != ERRORS and op.supports_autograd and DTYPES[short] in op.supported_backward_dtypes(device):
                    yield f"{name} {short} backward", op, DTYPES[short]
                continue
            if short == ERRORS:
                if op.error_inputs_func is not None:
                    yield f"{name} {short}", op, None
            elif DTYPES[short] in op.supported_dtypes(device):
                yield f"{name} {short}", op, DTYPES[short]


def tensors(tree):
    return [x for x in torch.utils._pytree.tree_leaves(tree) if isinstance(x, torch.Tensor)]


def copied(tree):
    """A copy of the arguments; two that are one stay one."""
    seen = {}

    def copy(x):
        if not isinstance(x, torch.Tensor):
            return x
        if id(x) not in seen:
            seen[id(x)] = x.detach().clone(memory_format=torch.preserve_format).requires_grad_(x.requires_grad)
        return seen[id(x)]

    return torch.utils._pytree.tree_map(copy, tree)


def differentiable(tree):
    return [x for x in tensors(tree) if x.requires_grad]


def with_gradients(f, args, kwargs, process):
    """The result of f, and the gradients of what `process` makes of it, weighted by fixed random numbers."""
    result = f(*args, **kwargs)
    outputs = differentiable(process(result))
    if not outputs:
        return result, []
    torch.manual_seed(1)
    weights = [torch.randn(y.shape, dtype=torch.float64).to(y) for y in outputs]
    found = torch.autograd.grad(outputs, differentiable((args, kwargs)), weights, allow_unused=True)
    return torch.utils._pytree.tree_map(lambda x: x.detach() if isinstance(x, torch.Tensor) else x, result), list(found)


def in_f64(tree):
    def widened(x):
        if isinstance(x, torch.Tensor) and (x.dtype.is_floating_point or x.dtype.is_complex):
            wide = x.detach().to(torch.float64 if x.dtype.is_floating_point else torch.complex128)
            return wide.requires_grad_(x.requires_grad)
        return torch.float64 if x in (torch.float32, torch.float16, torch.bfloat16) else x

    return torch.utils._pytree.tree_map(widened, tree)


def differs(found, expected, exact, tolerance, unset=(), strides=True):
    """What differs between the results: "" when nothing does."""
    a, b = torch.utils._pytree.tree_leaves(found), torch.utils._pytree.tree_leaves(expected)
    if len(a) != len(b):
        return f"{len(a)} results, expected {len(b)}"
    c = torch.utils._pytree.tree_leaves(exact) if exact is not None else [None] * len(b)
    if len(c) != len(b):
        c = [None] * len(b)
    for k, (x, y, z) in enumerate(zip(a, b, c)):
        if not isinstance(y, torch.Tensor):
            if type(x) is not type(y) or (x != y and x == x):
                return f"result {k}: {x!r}, expected {y!r}"
            continue
        if x.dtype != y.dtype or x.shape != y.shape:
            return f"result {k}: {x.dtype} {list(x.shape)}, expected {y.dtype} {list(y.shape)}"
        if x.layout != y.layout:
            return f"result {k}: layout {x.layout}, expected {y.layout}"
        if x.layout != torch.strided or x.is_quantized:
            continue
        if strides and x.numel() > 1 and any(i != j for n, i, j in zip(x.shape, x.stride(), y.stride()) if n > 1):
            return f"result {k}: strides {x.stride()}, expected {y.stride()}"
        if k in unset:
            continue
        if x.dtype.is_floating_point or x.dtype.is_complex:
            if torch.allclose(x, y, rtol=1e-6, atol=1e-7, equal_nan=True) and torch.equal(x.isnan(), y.isnan()):
                continue
            if z is not None and z.shape != y.shape:
                z = None
            if not torch._dynamo.utils.same(y, x, z, tol=tolerance, equal_nan=True):
                return f"result {k}: off by {(x.double() - y.double()).abs().nan_to_num(0, 0, 0).max() if not x.dtype.is_complex else '?'}"
        elif not torch.equal(x, y):
            return f"result {k}: {int((x != y).sum())} of {x.numel()} elements differ"
    return ""


def strides_of(tree):
    return [x.stride() for x in torch.utils._pytree.tree_leaves(tree) if isinstance(x, torch.Tensor)]


def strides_as_captured(f, args, kwargs):
    """Those that PyTorch's fake tensors have, for which the rest of a captured program is made. On CPUs they do not know how a
    Fourier transform of real numbers lies."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        fake = lambda x: mode.from_tensor(x) if isinstance(x, torch.Tensor) else x
        given = torch.utils._pytree.tree_map(fake, (args, kwargs))
        return strides_of(f(*given))


def zeros_for_none(gradients, like):
    """Autograd leaves out gradients that are zero; what is compiled may give them."""
    return [torch.zeros_like(x) if g is None else g for g, x in zip(gradients, like)]


def run_sample(op, sample, dtype, dynamic, backward=False):
    """(status, text): ok, wrong, error (only the compiled one raises), silent (only eager raises)."""
    args = (sample.input, *sample.args)
    leaves = differentiable((args, sample.kwargs))

    def run(f, change=lambda tree: tree):
        torch.manual_seed(0)
        given = change(copied((args, sample.kwargs)))
        if not backward:
            return f(*given), []
        result, gradients = with_gradients(lambda *a, **k: f(a, k), *given, sample.output_process_fn_grad)
        return result, zeros_for_none(gradients, change(leaves)) if gradients else []

    def f(args, kwargs):
        return op.op(*args, **kwargs)

    try:
        expected, refused = run(f), None
    except Exception as e:
        expected, refused = None, e
    exact = None, None
    if dtype.is_floating_point and dtype != torch.float64 and refused is None:
        with contextlib.suppress(Exception):
            exact = run(f, in_f64)
    torch._dynamo.reset()
    compiled = torch.compile(f, backend=pytorch.backend, dynamic=dynamic)
    try:
        found = run(compiled)
    except Exception as e:
        if refused is not None:
            return "ok", ""
        torch._dynamo.reset()
        try:  # what PyTorch cannot trace is no fault of the backend
            run(torch.compile(f, backend="aot_eager", dynamic=dynamic))
        except Exception:
            return "ok", ""
        return "error", f"{type(e).__name__}: {' | '.join(str(e).strip().splitlines()[:3])[:300]}"
    if refused is not None:
        return "silent", f"eager raises {type(refused).__name__}: {str(refused)[:150]}"
    tolerance = {torch.float64: 1e-8, torch.float32: 1e-4, torch.float16: 1e-3, torch.bfloat16: 1e-2}.get(dtype, 1e-4)

    unset = UNINITIALISED.get(op.name, ())

    def compared(found, expected):
        why = differs(found[0], expected[0], exact[0], tolerance, unset)
        if not why and (why := differs(found[1], expected[1], exact[1], tolerance, strides=False)):
            why = "gradient: " + why
        return why

    why = compared(found, expected)
    if why.startswith("result") and "strides" in why and not differs(
        found[0], expected[0], exact[0], tolerance, unset, strides=False
    ):
        with contextlib.suppress(Exception):
            if strides_of(found[0]) == strides_as_captured(f, args, sample.kwargs):
                return "ok", AS_CAPTURED
    if why and backward:  # what AOTAutograd itself changes is no fault of the backend
        torch._dynamo.reset()
        with contextlib.suppress(Exception):
            if not compared(found, run(torch.compile(f, backend="aot_eager", dynamic=dynamic))):
                return "ok", ""
    return ("wrong", why) if why else ("ok", "")


def raises(f, sample):
    torch._dynamo.reset()
    torch.manual_seed(0)
    try:
        f(copied((sample.input, *sample.args)), copied(sample.kwargs))
    except Exception:
        return True
    return False


def run_error(op, error, dynamic):
    """(status, text) of an error input: ok, or silent where only eager PyTorch raises."""
    sample = error.sample_input

    def f(args, kwargs):
        return op.op(*args, **kwargs)

    if not raises(f, sample) or raises(torch.compile(f, backend=pytorch.backend, dynamic=dynamic), sample):
        return "ok", ""
    if not raises(torch.compile(f, backend="aot_eager", dynamic=dynamic), sample):
        return "ok", ""  # what PyTorch's own capture loses is no fault of the backend
    return "silent", f"eager raises {error.error_type.__name__}: {error.error_regex[:150]}"


def run_node(op, dtype, samples, dynamic, backward, device):
    if dtype is None:
        return run_all(op.error_inputs(device), 0, lambda error: run_error(op, error, dynamic))
    op_samples = op.sample_inputs(device, dtype, requires_grad=backward)
    return run_all(op_samples, samples, lambda sample: run_sample(op, sample, dtype, dynamic, backward))


def run_all(drawn, samples, run_one):
    started = time.time()
    result = {"samples": 0, "status": "ok", "why": "", "fallback": [], "graphs": 0}
    fallback = {}
    errors = as_captured = 0
    for k, sample in enumerate(drawn):
        if samples and k >= samples:
            break
        pytorch.reset()
        graphs = pytorch.REPORT.graphs
        graphs.clear()
        status, why = run_one(sample)
        result["samples"] += 1
        result["graphs"] += len(pytorch.REPORT.seen)
        for g in pytorch.REPORT.seen:
            for r in g.refusals:
                fallback[r.op] = r.why
        for code in pytorch.REPORT.calls:
            fallback[f"a call: {code}"] = "not as PyTorch's fake tensors had it"
        pytorch.REPORT.seen.clear()
        if why == AS_CAPTURED:
            as_captured += 1
        if status != "ok":
            errors += 1
            if result["status"] == "ok":
                result["status"], result["why"] = status, f"sample {k}: {why}"
    result["fallback"] = [f"{op}: {why}" for op, why in sorted(fallback.items())]
    result["failed"], result["as_captured"] = errors, as_captured
    result["seconds"] = round(time.time() - started, 2)
    return result


def takes_work(device):
    """Whether the device still runs anything for this process: a fault in a kernel ends that."""
    try:
        if device != "cpu":
            torch.ones(8, device=device).sum().item()
    except Exception:
        return False
    return True


def expected_failures():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "opinfo_expected.txt")
    expected = {}
    if os.path.exists(path):
        for line in open(path):
            line = line.strip()
            if line and not line.startswith("#"):
                name, _, why = line.partition(":")
                expected[name.strip()] = why.strip()
    return expected


def report(results):
    expected = expected_failures()
    count = collections.Counter(r["status"] for r in results.values())
    ran = {n: r for n, r in results.items() if r["samples"]}
    graphs = [r for n, r in ran.items() if r["graphs"] and n.split()[1] != ERRORS]
    without, captured = sum(1 for r in graphs if r["status"] == "ok" and not r["fallback"]), len(graphs)
    print(
        f"{len(ran)} nodes: "
        + ", ".join(f"{n} {s}" for s, n in sorted(count.items()))
        + f"; {captured} captured, {without} of them without ATen ({100 * without / max(1, captured):.1f} %)"
    )
    if of_capture := [n for n, r in sorted(ran.items()) if r.get("as_captured")]:
        print(f"  strides of PyTorch's fake tensors, which are not eager's, in {len(of_capture)}: {', '.join(of_capture)}")
    reasons = collections.Counter(f for r in graphs for f in set(r["fallback"]))
    for f, n in reasons.most_common(60):
        print(f"  {n:4} x {f[:180]}")
    bad = 0
    for name, r in sorted(ran.items()):
        if r["status"] != "ok" and name not in expected:
            print(f"FAIL {name}: {r['status']} ({r['failed']} of {r['samples']}): {r['why']}")
            bad += 1
        if r["status"] == "ok" and name in expected:
            print(f"FAIL {name} passes; take it off the list of expected failures")
            bad += 1
    return bad


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    p.add_argument("--samples", type=int, default=5)
    p.add_argument("--dynamic", action="store_true")
    p.add_argument("--backward", action="store_true")
    p.add_argument("--part", default="0/1")
    p.add_argument("--every", type=int, default=1)
    p.add_argument("--only")
    p.add_argument("--dtypes", default=",".join([*DTYPES, ERRORS]))
    p.add_argument("--out")
    p.add_argument("--report", nargs="+")
    a = p.parse_args()
    if a.report:
        results = {}
        for path in a.report:
            for line in open(path):
                r = json.loads(line)
                results[r.pop("node")] = r
        sys.exit(1 if report(results) else 0)
    warnings.simplefilter("ignore")
    torch.set_grad_enabled(a.backward)
    torch._dynamo.config.capture_scalar_outputs = True
    torch._dynamo.config.capture_dynamic_output_shape_ops = True
    torch._dynamo.config.recompile_limit = 64
    import logging

    logging.disable(logging.WARNING)
    done = {}
    if a.out and os.path.exists(a.out):
        for line in open(a.out):
            with contextlib.suppress(ValueError):
                r = json.loads(line)
                done[r.pop("node")] = r
    part, parts = map(int, a.part.split("/"))
    out = open(a.out, "a") if a.out else None
    results = {}
    torch.set_num_threads(1)
    only = set(a.only.split(",")) if a.only else None
    for k, (name, op, dtype) in enumerate(nodes(only, a.dtypes.split(","), a.backward, a.device)):
        if k % a.every or (k // a.every) % parts != part:
            continue
        if a.dynamic:
            name += " dynamic"
        if a.device != "cpu":
            name += f" {a.device}"
        if name in done:
            results[name] = done[name]
            continue
        with contextlib.redirect_stderr(io.StringIO()):
            r = run_node(op, dtype, a.samples, True if a.dynamic else None, a.backward, a.device)
        if lost := not takes_work(a.device):
            r["status"], r["why"] = "wrong", f"the {a.device} device is lost after it; {r['why']}"
        results[name] = r
        if out:
            out.write(json.dumps({"node": name, **r}) + "\n")
            out.flush()
        if lost:
            sys.exit(LOST)
    bad = report(results)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
