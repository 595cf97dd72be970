# SPDX-License-Identifier: Apache-2.0
"""Llama-3.2-1B's training step in bf16 beside PyTorch's: loss and gradients of 4 texts of 1,024 tokens, 16 passes.

usage: run.py BENCH_CUDA_TRAINING OUT.json [--ours ROW,..] [--peers ROW,..] [--seconds 460] [--layers 16 --hidden 2048 ..]

Rows are eager, default, 0.99, 0.5, 0.1 (memory budgets), reduce-overhead, max-autotune. A peer's row tessera:ROW is the same
PyTorch program through torch.compile(backend="tessera"), and the peer's row jax the same step in JAX (jax_row.py). Each row is
a process of its own.
Printed: memory held between forward and backward and at the peak, both beyond parameters and inputs, in GB of 1e9 bytes;
seconds of 16 passes (the median of three) and of the first one. Rows for which no time is left are named.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve()
ROOT = HERE.parents[3]
SIZES = {"layers": 16, "hidden": 2048, "heads": 32, "key-heads": 8, "vocabulary": 128256, "batch": 4, "length": 1024,
         "passes": 16}
CONFIG = str(ROOT / "configs" / "cuda.toml")
ROWS = ["eager", "default", "0.99", "0.5", "0.1", "reduce-overhead", "max-autotune"]


def is_budget(row):
    return row.replace(".", "", 1).isdigit()


def ours(program, row, o):
    """The command of a row of ours: `row` may carry what follows, as in default+--form=step."""
    name, *more = row.split("+")
    command = [program, "--config", o.config, "--device", o.device, "--name", row]
    command += [f"--{k}={getattr(o, k.replace('-', '_'))}" for k in SIZES]
    command += ["--rows", str(0 if name == "eager" else o.rows)]
    if name == "eager":  # op by op
        command += ["--set", "pipeline.skip=[\"fuse\"]", "--set", "partitioner.name=\"\""]
    elif is_budget(name):
        command += ["--set", "partitioner.name=budget", "--set", f"partitioner.budget={name}"]
    elif name != "default":
        command += ["--mode", name]
    return command + more


def peer(row, o):
    """One row of PyTorch's, in this process."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(1)
    torch.set_default_device("cuda")
    torch.set_default_dtype(torch.bfloat16)
    scaling = {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 8192}
    config = LlamaConfig(vocab_size=o.vocabulary, hidden_size=o.hidden, intermediate_size=4 * o.hidden,
                         num_hidden_layers=o.layers, num_attention_heads=o.heads, num_key_value_heads=o.key_heads,
                         head_dim=o.hidden // o.heads, rms_norm_eps=1e-5, rope_theta=500000.0, rope_scaling=scaling,
                         tie_word_embeddings=True, max_position_embeddings=131072, use_cache=False)
    model = LlamaForCausalLM(config)
    model.train()
    tokens = torch.randint(o.vocabulary, (o.batch, o.length + 1))
    ids, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    name = row.removeprefix("tessera:")
    ours, options = name != row, None
    if ours:
        from tessera import _core, pytorch

        if is_budget(name):
            options = {"activation_memory_budget": float(name)}
    elif is_budget(name):
        import torch._functorch.config

        torch._functorch.config.activation_memory_budget = float(name)

    def forward(ids, targets):
        logits = model(input_ids=ids).logits
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())

    mode = name if name in ("reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs") else None
    f = forward
    if ours:
        f = torch.compile(forward, mode=mode, options=options, backend=pytorch.backend)
    elif name != "eager":
        f = torch.compile(forward, mode=mode)
    torch.cuda.synchronize()
    resident = torch.cuda.memory_allocated()
    kept = 0

    def one(look=False):
        nonlocal kept
        model.zero_grad(set_to_none=True)
        if mode and not ours:
            torch.compiler.cudagraph_mark_step_begin()
        loss = f(ids, targets)
        if look:
            kept = torch.cuda.memory_allocated() - resident
        loss.backward()
        return loss.detach()

    start = time.perf_counter()
    loss = one()
    torch.cuda.synchronize()
    out = {"name": row, "first_step_s": time.perf_counter() - start, "loss": loss.item()}
    for _ in range(3):
        one()
    model.zero_grad(set_to_none=True)
    del loss
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    if ours:
        _core.memory_peak("cuda:0", True)
    one(True)
    torch.cuda.synchronize()
    out["activations_bytes"] = kept
    out["peak_bytes"] = torch.cuda.max_memory_allocated() - resident
    if ours:
        out["peak_bytes"] += _core.memory_peak("cuda:0")
        print(pytorch.report(), file=sys.stderr)
    out["resident_bytes"] = resident
    times = []
    for _ in range(3):
        start = time.perf_counter()
        for _ in range(o.passes):
            one()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    out["passes_s"] = statistics.median(times)
    out["spread"] = max(times) / min(times) - 1
    print(json.dumps(out), flush=True)


def run_row(command, seconds):
    """The row as a dictionary, whatever becomes of the process."""
    name = command[command.index("--name") + 1] if "--name" in command else command[-1] if "--peer" in command else "jax"
    if seconds < 15:
        return {"name": name, "error": "no time was left"}
    try:
        p = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return {"name": name, "error": f"took more than {seconds:.0f} s"}
    lines = [line for line in p.stdout.splitlines() if line.startswith("{")]
    if lines:
        return json.loads(lines[-1]) | ({"stderr": p.stderr[-3000:]} if p.stderr else {})
    return {"name": name, "error": f"status {p.returncode}: {p.stderr[-1500:]}"}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("program")
    p.add_argument("out")
    p.add_argument("--ours", default=",".join(ROWS))
    p.add_argument("--peers", default=",".join(ROWS[:-1]))
    p.add_argument("--peer", help=argparse.SUPPRESS)
    p.add_argument("--config", default=CONFIG)
    p.add_argument("--device", default="cuda")
    p.add_argument("--seconds", type=float, default=460)
    p.add_argument("--rows", type=int, default=4096, help="tokens whose logits we hold at a time; 0: no such loss")
    p.add_argument("--row-seconds", type=float, default=150)
    for k, v in SIZES.items():
        p.add_argument(f"--{k}", type=int, default=v)
    o = p.parse_args()
    if o.peer:
        return peer(o.peer, o)
    end = time.monotonic() + o.seconds
    sizes = [f"--{k}={getattr(o, k.replace('-', '_'))}" for k in SIZES]
    rows = []
    commands = [("tessera", ours(o.program, r, o)) for r in o.ours.split(",") if r]
    peers = [sys.executable, str(HERE), o.program, o.out, *sizes, "--peer"]
    in_jax = [sys.executable, str(HERE.with_name("jax_row.py")), *sizes]
    commands += [("JAX", in_jax) if r == "jax" else ("PyTorch", [*peers, r]) for r in o.peers.split(",") if r]
    print(f"{'':34}{'activations':>12}{'peak':>8}{'16 passes':>11}{'spread':>8}{'first':>8}{'loss':>9}", flush=True)
    for side, command in commands:
        r = {"side": side} | run_row(command, min(o.row_seconds, end - time.monotonic()))
        rows.append(r)
        pathlib.Path(o.out).write_text(json.dumps(rows, indent=1))
        label = f"{side} {r['name']}"
        if "passes_s" not in r:
            print(f"{label:34} {r.get('error', '')[-400:]}", flush=True)
            continue
        kept = f"{r['activations_bytes'] / 1e9:>9.2f} GB" if "activations_bytes" in r else f"{'':12}"
        print(f"{label:34}{kept}{r['peak_bytes'] / 1e9:>8.2f}{r['passes_s']:>9.3f} s"
              f"{r['spread']:>8.1%}{r['first_step_s']:>6.1f} s{r['loss']:>9.4f}", flush=True)


if __name__ == "__main__":
    main()
