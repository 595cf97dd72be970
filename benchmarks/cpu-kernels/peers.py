# SPDX-License-Identifier: Apache-2.0
"""The kernels of bench-cpu-kernels in PyTorch, eager and compiled, on the sizes of its JSON document.

peers.py OURS.json                        measures; prints {"kernel|dtype|rows": {"eager": GB/s, "compile": GB/s, "compile_seconds": s}}
peers.py --table OURS FRESH KEPT [--json] joins the three documents
"""
import json
import statistics
import sys
import time


def kernels(torch):
    f = torch.nn.functional

    def adam(p, g, m, v):
        m = m * 0.9 + g * 0.1
        v = v * 0.999 + (g * g) * 0.001
        return p - (m / (v.sqrt() + 1e-8)) * 0.001, m, v

    def rms(x, r, w):
        h = x + r
        return h, f.rms_norm(h, (h.shape[-1],), w, 1e-6)

    full, row, wide = "full", "row", "turned"
    return {
        "copy": (lambda x: -x, [full]),
        "bias+gelu": (lambda x, b: f.gelu(x + b), [full, row]),
        "softmax": (lambda x: torch.softmax(x, -1), [full]),
        "layernorm": (lambda x, w, b: f.layer_norm(x, (x.shape[-1],), w, b), [full, row, row]),
        "residual+rmsnorm": (rms, [full, full, row]),
        "swiglu": (lambda x, g: x * f.silu(g), [full, full]),
        "cross entropy": (lambda x, t: f.cross_entropy(x, t), [full, "classes"]),
        "adam": (adam, [full] * 4),
        "transpose+add": (lambda x, y: x.t() + y, [wide, full]),
        "column sum": (lambda x: x.sum(0), [full]),
        "full sum": (lambda x: x.sum(), [full]),
    }


def measure(path):
    import torch

    ours = json.load(open(path))
    torch.set_num_threads(ours["threads"])
    table = kernels(torch)
    out = {}
    for row in ours["kernels"]:
        name, rows, cols = row["kernel"], row["rows"], row["cols"]
        dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[row["dtype"]]
        function, kinds = table[name]
        shapes = {"full": (rows, cols), "row": (cols,), "turned": (cols, rows)}
        args = [torch.randint(0, cols, (rows,)) if k == "classes" else torch.rand(shapes[k]).to(dtype) for k in kinds]
        result = {}
        with torch.no_grad():
            start = time.perf_counter()
            torch._dynamo.reset()
            compiled = torch.compile(function, dynamic=False)
            compiled(*args)
            result["compile_seconds"] = time.perf_counter() - start
            ways = {"eager": function, "compile": compiled}
            times = {k: [] for k in ways}
            calls = max(1, int(4e7 / row["bytes"]))
            for r in range(-2, 9):
                for k, call in ways.items():
                    call(*args)
                    start = time.perf_counter()
                    for _ in range(calls):
                        call(*args)
                    if r >= 0:
                        times[k].append((time.perf_counter() - start) / calls)
        for k, t in times.items():
            result[k] = row["bytes"] / statistics.median(t) * 1e-9
        out[f"{name}|{row['dtype']}|{rows}"] = result
        print(name, row["dtype"], rows, result, file=sys.stderr)
    print(json.dumps(out))


def table(ours_path, fresh_path, kept_path, as_json):
    ours, fresh, kept = (json.load(open(p)) for p in (ours_path, fresh_path, kept_path))
    for row in ours["kernels"]:
        key = f"{row['kernel']}|{row['dtype']}|{row['rows']}"
        row["torch"] = fresh[key]
        row["torch_memory_reused"] = kept[key]
    if as_json:
        print(json.dumps(ours, indent=2))
        return
    print(f"GB/s of least traffic, {ours['threads']} threads. 'relaxed': cpu.toml with numerics = \"relaxed\", where bf16 is rounded as in a compiled kernel of torch. "
          "'kept': torch with memory that is reused from call to call.\n")
    print("| kernel | copy | eager.toml | cpu.toml | relaxed | of copy | torch | compile | torch, kept | compile, kept | compile s |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for row in ours["kernels"]:
        rate = lambda name: row[name]["gb_per_s"] if name in row else float("nan")
        t, k = row["torch"], row["torch_memory_reused"]
        print(
            f"| {row['kernel']} {row['dtype']}[{row['rows']}, {row['cols']}] | {rate('memcpy'):.1f} | {rate('eager'):.1f} | {rate('cpu'):.1f} "
            f"| {rate('relaxed'):.1f} | {rate('cpu') / rate('memcpy'):.2f} | {t['eager']:.1f} | {t['compile']:.1f} | {k['eager']:.1f} | {k['compile']:.1f} "
            f"| {t['compile_seconds']:.1f} |"
        )


if __name__ == "__main__":
    if sys.argv[1] == "--table":
        table(*sys.argv[2:5], "--json" in sys.argv[5:])
    else:
        measure(sys.argv[1])
