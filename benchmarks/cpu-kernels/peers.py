# SPDX-License-Identifier: Apache-2.0
"""bench-cpu-kernels beside the same kernels in PyTorch (eager, compiled, compiled to round as eager) and XLA (jax.jit): all sides
in turn, kernel by kernel, so that a machine that others use treats them alike.

peers.py PROGRAM [--rounds N] [--dtype f32|bf16] [--size near|far] [--only NAME] [--json]
peers.py --serve torch|jax       one side: a line of JSON per request, {"prepare": row} or {"warm": calls, "measure": calls}; answers are lines of JSON
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

# glibc gives large blocks back to the system when they are freed, and the next result then pays for its pages again; these
# settings keep them.
KEPT = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40), "MALLOC_TOP_PAD_": str(1 << 30)}
SAMPLES = 4  # of a side, in each round
# Inductor leaves bf16 in f32 from one operation to the next of a kernel; with this it rounds after each, and constants too, as
# numerics = "strict" does.
AS_EAGER = {"emulate_precision_casts": True}


def torch_kernels(torch):
    f = torch.nn.functional

    def adam(p, g, m, v):
        m = m * 0.9 + g * 0.1
        v = v * 0.999 + (g * g) * 0.001
        return p - (m / (v.sqrt() + 1e-8)) * 0.001, m, v

    def rms(x, r, w):
        h = x + r
        return h, f.rms_norm(h, (h.shape[-1],), w, 1e-6)

    return {
        "copy": lambda x: -x,
        "bias+gelu": lambda x, b: f.gelu(x + b),
        "softmax": lambda x: torch.softmax(x, -1),
        "layernorm": lambda x, w, b: f.layer_norm(x, (x.shape[-1],), w, b),
        "residual+rmsnorm": rms,
        "swiglu": lambda x, g: x * f.silu(g),
        "cross entropy": lambda x, t: f.cross_entropy(x, t),
        "adam": adam,
        "transpose+add": lambda x, y: x.t() + y,
        "column sum": lambda x: x.sum(0),
        "full sum": lambda x: x.sum(),
    }


def jax_kernels(jax):
    jnp = jax.numpy

    def adam(p, g, m, v):
        m = m * 0.9 + g * 0.1
        v = v * 0.999 + (g * g) * 0.001
        return p - (m / (jnp.sqrt(v) + 1e-8)) * 0.001, m, v

    def rms(x, r, w):
        h = x + r
        wide = h.astype(jnp.float32)
        return h, (wide * jax.lax.rsqrt((wide * wide).mean(-1, keepdims=True) + 1e-6)).astype(h.dtype) * w

    def layernorm(x, w, b):
        wide = x.astype(jnp.float32)
        centred = wide - wide.mean(-1, keepdims=True)
        return (centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)).astype(x.dtype) * w + b

    def cross_entropy(x, t):
        logits = jax.nn.log_softmax(x.astype(jnp.float32), -1)
        return -jnp.take_along_axis(logits, t[:, None], 1).mean()

    return {
        "copy": lambda x: -x,
        "bias+gelu": lambda x, b: jax.nn.gelu(x + b, approximate=False),
        "softmax": lambda x: jax.nn.softmax(x, -1),
        "layernorm": layernorm,
        "residual+rmsnorm": rms,
        "swiglu": lambda x, g: x * jax.nn.silu(g),
        "cross entropy": cross_entropy,
        "adam": adam,
        "transpose+add": lambda x, y: x.T + y,
        "column sum": lambda x: x.sum(0),
        "full sum": lambda x: x.sum(),
    }


ARGUMENTS = {
    "copy": ["full"], "bias+gelu": ["full", "row"], "softmax": ["full"], "layernorm": ["full", "row", "row"],
    "residual+rmsnorm": ["full", "full", "row"], "swiglu": ["full", "full"], "cross entropy": ["full", "classes"], "adam": ["full"] * 4,
    "transpose+add": ["turned", "full"], "column sum": ["full"], "full sum": ["full"],
}  # fmt: skip


def shapes(row):
    return {"full": (row["rows"], row["cols"]), "row": (row["cols"],), "turned": (row["cols"], row["rows"])}


class Torch:
    def __init__(self, threads):
        import torch

        self.torch, self.version = torch, torch.__version__
        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        self.kernels = torch_kernels(torch)

    def prepare(self, row):
        torch, function, shape = self.torch, self.kernels[row["kernel"]], shapes(row)
        dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[row["dtype"]]
        args = [torch.randint(0, row["cols"], (row["rows"],)) if k == "classes" else torch.rand(shape[k]).to(dtype)
                for k in ARGUMENTS[row["kernel"]]]  # fmt: skip
        torch._dynamo.reset()
        compiled = torch.compile(function, dynamic=False)
        start = time.perf_counter()
        compiled(*args)
        seconds = time.perf_counter() - start
        self.ways = {"eager": lambda: function(*args), "compile": lambda: compiled(*args)}
        if row["dtype"] == "bf16":  # dynamo tells the two by their options, so each keeps its own code; in f32 there is nothing to round
            as_eager = torch.compile(function, dynamic=False, options=AS_EAGER)
            as_eager(*args)
            self.ways["compile_as_eager"] = lambda: as_eager(*args)
        return seconds


class Jax:
    def __init__(self, threads):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])  # XLA takes as many threads as there are CPUs
        os.environ["JAX_PLATFORMS"] = "cpu"
        import jax

        self.jax, self.version = jax, jax.__version__
        self.kernels = jax_kernels(jax)

    def prepare(self, row):
        jax, shape = self.jax, shapes(row)
        dtype = {"f32": jax.numpy.float32, "bf16": jax.numpy.bfloat16}[row["dtype"]]
        key = jax.random.key(0)
        args = [jax.random.randint(key, (row["rows"],), 0, row["cols"]) if k == "classes" else jax.random.uniform(key, shape[k], dtype)
                for k in ARGUMENTS[row["kernel"]]]  # fmt: skip
        jax.block_until_ready(args)
        compiled = jax.jit(self.kernels[row["kernel"]])
        start = time.perf_counter()
        jax.block_until_ready(compiled(*args))
        self.ways = {"xla": lambda: jax.block_until_ready(compiled(*args))}
        return time.perf_counter() - start


def serve(which):
    threads = int(sys.stdin.readline())
    side = {"torch": Torch, "jax": Jax}[which](threads)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    print(json.dumps({"version": side.version}), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if "prepare" in request:
            answer = {"compile_seconds": side.prepare(request["prepare"])}
        else:
            answer = {k: [] for k in side.ways}
            for sample in range(-1, SAMPLES):
                for k, call in side.ways.items():
                    for _ in range(request["warm"]):
                        call()
                    start = time.perf_counter()
                    for _ in range(request["measure"]):
                        call()
                    if sample >= 0:
                        answer[k].append((time.perf_counter() - start) / request["measure"])
        print(json.dumps(answer), file=answers, flush=True)


class Server:
    def __init__(self, which, threads, environment):
        self.process = subprocess.Popen([sys.executable, __file__, "--serve", which], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, env=dict(os.environ, OMP_NUM_THREADS=str(threads), **environment))  # fmt: skip
        self.version = self.ask(threads)["version"]

    def ask(self, request):
        print(json.dumps(request), file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"error: {' '.join(self.process.args)} ended; its own message is above")
        return json.loads(line)


def ours(program, dtype, size, only):
    command = [program, "--json", "--relaxed", "--dtype", dtype, "--size", size, "--runs", str(SAMPLES), "--only", only]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def compare(options):
    document = None
    servers = {}
    for dtype in options.dtype.split(","):
        for size in options.size.split(","):
            for name in (k for k in ARGUMENTS if options.only in k):
                first = ours(options.program, dtype, size, name)
                row = first["kernels"][0]
                if document is None:
                    document = {**first, "schema": "tessera.bench.cpu-kernels.peers/2", "rounds": options.rounds, "kernels": []}
                    threads = document["threads"]
                    servers = {"torch": Server("torch", threads, {}), "torch_memory_reused": Server("torch", threads, KEPT),
                               "xla": Server("jax", threads, KEPT)}  # fmt: skip
                    document["peers"] = {"torch": servers["torch"].version, "jax": servers["xla"].version}
                seconds = {}
                compiled = {k: s.ask({"prepare": row})["compile_seconds"] for k, s in servers.items()}
                near = size == "near"
                measure = {"warm": 3 if near else 1, "measure": max(8 if near else 1, int(4e7 / row["bytes"]))}  # as bench-cpu-kernels
                for turn in range(options.rounds):
                    mine = first if turn == 0 else ours(options.program, dtype, size, name)
                    for way in ("memcpy", "eager", "cpu", "relaxed"):
                        seconds.setdefault((way, ""), []).append(mine["kernels"][0][way]["seconds"])
                    for k, s in servers.items():
                        for way, times in s.ask(measure).items():
                            seconds.setdefault((k, way), []).append(statistics.median(times))
                for (side, way), times in seconds.items():
                    rate = row["bytes"] / statistics.median(times) * 1e-9
                    if way == "":
                        row[side] = {"seconds": statistics.median(times), "gb_per_s": rate}
                    else:
                        row.setdefault(side, {"compile_seconds": compiled[side]})[way] = rate
                # Of times of the same round, which the machine treated most alike.
                best = lambda way: [min(a, b) for a, b in zip(seconds["torch_memory_reused", way], seconds["torch", way])]
                by_rounds = lambda other, way: statistics.median(b / t for b, t in zip(other, seconds[way, ""]))
                # Like with like: each over the compiled kernel that rounds where it does.
                strict = "compile_as_eager" if dtype == "bf16" else "compile"
                row["speed_up"] = {"cpu": by_rounds(best(strict), "cpu"), "relaxed": by_rounds(best("compile"), "relaxed"),
                                   "cpu_over_default": by_rounds(best("compile"), "cpu")}  # fmt: skip
                row["of_copy"] = {way: by_rounds(seconds["memcpy", ""], way) for way in ("cpu", "relaxed")}
                document["kernels"].append(row)
                print(f"{name} {dtype} {size}", file=sys.stderr)
    return document


def show(document):
    peers = document["peers"]
    print(f"GB/s of least traffic, {document['threads']} threads, medians of {document['rounds']} rounds of all sides; "
          f"PyTorch {peers['torch']}, JAX {peers['jax']}. "
          "'compile': torch.compile as it comes, which keeps bf16 in f32 inside a kernel; 'relaxed': cpu.toml with numerics = \"relaxed\", which does too. "
          "'as eager': torch.compile with emulate_precision_casts, which rounds bf16 after every operation, as cpu.toml and eager PyTorch do. "
          "'kept': with memory that is reused from call to call. 'of copy': ours and relaxed over the copy. 'over compile', like with like: ours over "
          "'as eager' (f32: over 'compile'), relaxed over 'compile'; 'over default': ours over 'compile', which rounds bf16 less. Each is over the "
          "better of new and kept memory in each round, the median of the rounds.\n")
    print("| kernel | copy | eager.toml | cpu.toml | relaxed | of copy | over compile | over default | torch | compile | as eager | torch, kept "
          "| compile, kept | as eager, kept | XLA, kept | compile s, torch / XLA |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|")
    for row in document["kernels"]:
        rate = lambda way: row[way]["gb_per_s"]
        t, k, x, up, copy = row["torch"], row["torch_memory_reused"], row["xla"], row["speed_up"], row["of_copy"]
        as_eager = lambda side: f"{side['compile_as_eager']:.1f}" if "compile_as_eager" in side else "-"
        print(
            f"| {row['kernel']} {row['dtype']}[{row['rows']}, {row['cols']}] | {rate('memcpy'):.1f} | {rate('eager'):.1f} | {rate('cpu'):.1f} "
            f"| {rate('relaxed'):.1f} | {copy['cpu']:.2f}, {copy['relaxed']:.2f} | {up['cpu']:.2f}, {up['relaxed']:.2f} | {up['cpu_over_default']:.2f} "
            f"| {t['eager']:.1f} | {t['compile']:.1f} | {as_eager(t)} | {k['eager']:.1f} | {k['compile']:.1f} | {as_eager(k)} "
            f"| {x['xla']:.1f} | {t['compile_seconds']:.1f} / {x['compile_seconds']:.1f} |"
        )


def main():
    parser = argparse.ArgumentParser(description="bench-cpu-kernels beside PyTorch and XLA, in turn")
    parser.add_argument("program", help="bench-cpu-kernels")
    parser.add_argument("--rounds", type=int, default=3, help="of all sides for each kernel (3)")
    parser.add_argument("--dtype", default="f32,bf16")
    parser.add_argument("--size", default="near,far", help="in the last-level cache, beyond it")
    parser.add_argument("--only", default="", help="kernels whose name contains this")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    document = compare(options)
    if document is None:
        sys.exit(f"error: no kernel's name contains '{options.only}'; there are: {', '.join(ARGUMENTS)}")
    print(json.dumps(document, indent=2)) if options.json else show(document)


if __name__ == "__main__":
    serve(sys.argv[2]) if sys.argv[1:2] == ["--serve"] else main()
