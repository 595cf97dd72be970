# SPDX-License-Identifier: Apache-2.0
"""One rank of distributed_test.py: distributed_worker.py SCENARIO RANK FOLDER. What it found stands in FOLDER/RANK.json."""

import datetime
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP
from training_test import Language, language_loss

from tessera import pytorch
from tessera.pytorch import backend, compiler, shared

RANKS = 2
STEPS = 20


def sharded(m):
    mesh = init_device_mesh("cpu", (RANKS,))
    for block in m.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(m, mesh=mesh)


def in_place(m):
    m.compile(backend=backend)
    return m


WAYS = {
    "ddp eager": DDP,
    "ddp before": lambda m: DDP(torch.compile(m, backend=backend)),
    "ddp after": lambda m: torch.compile(DDP(m), backend=backend),
    "fsdp eager": sharded,
    "fsdp before": lambda m: sharded(in_place(m)),
    "fsdp after": lambda m: torch.compile(sharded(m), backend=backend),
}


def losses(rank):
    """The losses of this rank over 20 steps, by way of wrapping and compiling."""
    found, graphs = {}, {}
    for name, way in WAYS.items():
        torch._dynamo.reset()
        pytorch.reset()
        torch.manual_seed(0)
        m = way(Language(dropout=0.0))
        optimiser = torch.optim.AdamW(m.parameters(), 1e-3)
        values = []
        for step in range(STEPS):
            tokens = torch.randint(0, 23, (4, 9), generator=torch.Generator().manual_seed(RANKS * step + rank))
            loss = language_loss(m(tokens), tokens)
            loss.backward()
            optimiser.step()
            optimiser.zero_grad()
            values.append(loss.item())
        found[name] = values
        graphs[name] = len(pytorch.REPORT.graphs)
    return {"losses": found, "graphs": graphs, "refused": sorted({r.op for g in pytorch.REPORT.graphs for r in g.refusals})}


def collectives(rank):
    """Collectives in a graph: steps of its plan, forward and backward."""
    import torch.distributed._functional_collectives as funcol

    def f(x, w):
        y = funcol.all_reduce(torch.tanh(x @ w), "sum", dist.group.WORLD)
        z = funcol.all_gather_tensor(y * 2, 0, dist.group.WORLD)
        return torch.sin(z) @ w

    x, w = torch.full((2, 3), 1.0 + rank), torch.linspace(-1, 1, 9).reshape(3, 3)
    with torch.no_grad():
        expected, out = f(x, w), torch.compile(f, backend=backend)(x, w)
    graphs = pytorch.REPORT.graphs
    return {
        "error": float((out - expected).abs().max()),
        "regions": [g.regions for g in graphs],
        "steps": [g.steps for g in graphs],
        "through": sorted({r.op for g in graphs for r in g.refusals}),
    }


def different(rank):
    """Ranks whose graphs reduce tensors of different shapes."""
    import torch.distributed._functional_collectives as funcol

    def f(x):
        y = torch.cat([x, x]) if rank == 0 else x
        return funcol.all_reduce(y + 1, "sum", dist.group.WORLD) * 2

    started = time.monotonic()
    try:
        with torch.no_grad():
            out = torch.compile(f, backend=backend)(torch.ones(1024 * 64))
        dist.barrier()
        return {"error": None, "sum": float(out.sum())}
    except Exception as e:  # noqa: BLE001
        return {"error": f"{type(e).__name__}: {e}", "seconds": time.monotonic() - started}


def dies(rank):
    """Rank 1 dies while it compiles what rank 0 waits for."""
    if rank == 1:
        real = compiler.compile_shared

        def die(context, graph):
            folder = shared._folder(context)
            with shared.locked(folder, "probe", 60):
                open(os.path.join(sys.argv[3], "compiling"), "w").close()
                time.sleep(1)
                os._exit(9)
            return real(context, graph)

        compiler.compile_shared = die
    else:
        while not os.path.exists(os.path.join(sys.argv[3], "compiling")):
            time.sleep(0.01)
        with shared.locked(shared._folder(None), "probe", 60) as held:  # as a graph that the other compiles
            waited = held
    m = torch.compile(torch.nn.Linear(3, 3), backend=backend)
    y = m(torch.ones(2, 3))
    try:
        dist.all_reduce(y.detach())
    except Exception as e:  # noqa: BLE001
        return {"held": waited, "value": float(y.sum()), "error": f"{type(e).__name__}: {e}"}
    return {"held": waited, "error": None}


def hangs(rank):
    """Rank 1 keeps every lock and never gives it back: rank 0 waits as long as it is told to, and compiles by itself."""
    os.environ["TESSERA_COMPILE_LOCK_SECONDS"] = "1"
    barrier = os.path.join(sys.argv[3], "done")
    if rank == 1:
        import contextlib

        with contextlib.ExitStack() as stack:
            for k in range(64):
                stack.enter_context(shared.locked(shared._folder(None), f"{k:02x}", 5))
            open(os.path.join(sys.argv[3], "locked"), "w").close()
            while not os.path.exists(barrier):
                time.sleep(0.01)
        return {}
    while not os.path.exists(os.path.join(sys.argv[3], "locked")):
        time.sleep(0.01)
    y = torch.compile(lambda x: x.sin() + 1, backend=backend)(torch.zeros(3))
    open(barrier, "w").close()
    return {"value": y.tolist()}


def main():
    scenario, rank, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    wait = datetime.timedelta(seconds=15 if scenario in ("different", "dies") else 300)
    store = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=RANKS, timeout=wait)
    found = globals()[scenario](rank)
    with open(os.path.join(folder, f"{rank}.json"), "w") as out:
        json.dump(found, out)
    if scenario not in ("different", "dies"):
        dist.barrier()
    os._exit(0)  # peers may be gone: nothing waits for them


if __name__ == "__main__":
    main()
