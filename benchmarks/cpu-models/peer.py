# SPDX-License-Identifier: Apache-2.0
"""One peer on one model: compiles, then obeys the lines of stdin as bench-cpu-models --serve does.

    python peer.py ENGINE NAME FOLDER THREADS     ENGINE: eager, compile, freezing, xla, onnxruntime, openvino
"""
import contextlib
import json
import os
import sys
import time

engine, name, folder, threads = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
os.environ["OMP_NUM_THREADS"] = str(threads)
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what libraries print goes to stderr

import numpy as np  # noqa: E402


def milliseconds():
    return time.perf_counter() * 1e3


def answer(value):
    answers.write(json.dumps(value) + "\n")
    answers.flush()


def with_torch():
    import torch

    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import models

    torch.set_num_threads(threads)
    model, inputs = models.build(name)
    start = milliseconds()
    if engine != "eager":
        if engine == "freezing":
            torch._inductor.config.freezing = True
        model = torch.compile(model, dynamic=False)
    return start, lambda: model(**inputs).numpy(), torch.inference_mode() if engine == "eager" else torch.no_grad()


def with_xla():
    os.environ["NPROC"] = str(threads)  # by which XLA sizes its pool; else it is the number of CPUs
    os.environ.update(JAX_PLATFORMS="cpu", JAX_TRACEBACK_FILTERING="off")
    # The cache, where JAX_COMPILATION_CACHE_DIR says, takes what compiles fast too; one that cannot be written would show as a
    # slow warm compile.
    os.environ.update(JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="0", JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES="-1", JAX_RAISE_PERSISTENT_CACHE_ERRORS="1")
    import jax
    import onnx

    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import onnx_to_jax

    function = onnx_to_jax.translate(onnx.load(os.path.join(folder, "model.onnx")))
    inputs = jax.device_put({k: onnx_to_jax.narrow(v) for k, v in np.load(os.path.join(folder, "in.npz")).items()})
    pool = pool_threads("XLAEigen")
    if pool != threads:
        raise RuntimeError(f"XLA's pool has {pool} threads instead of {threads}: this version obeys another setting than NPROC, or names them otherwise")
    start = milliseconds()
    compiled = jax.jit(lambda given: function(given)[0])
    return start, lambda: jax.block_until_ready(compiled(inputs)), contextlib.nullcontext()


def pool_threads(name):
    """How many threads of this process have this in their names."""
    count = 0
    for task in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{task}/comm") as comm:
            count += name in comm.read()
    return count


def with_onnxruntime():
    import onnxruntime as ort

    inputs = dict(np.load(os.path.join(folder, "in.npz")))
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    start = milliseconds()
    session = ort.InferenceSession(os.path.join(folder, "model.onnx"), options, providers=["CPUExecutionProvider"])
    return start, lambda: session.run(None, inputs)[0], contextlib.nullcontext()


def with_openvino():
    import openvino as ov

    inputs = dict(np.load(os.path.join(folder, "in.npz")))
    core = ov.Core()
    start = milliseconds()
    config = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "bf16" if name.endswith("-bf16") else "f32"}
    compiled = core.compile_model(os.path.join(folder, "model.onnx"), "CPU", config)
    request = compiled.create_infer_request()
    names = [i.get_any_name() for i in compiled.inputs]
    given = {n: inputs[n] for n in names}

    def call():
        request.infer(given, share_inputs=True)
        return request.get_output_tensor(0).data

    return start, call, contextlib.nullcontext()


def peak_resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))


def main():
    make = {"onnxruntime": with_onnxruntime, "openvino": with_openvino, "xla": with_xla}.get(engine, with_torch)
    start, call, context = make()
    with context:
        begin = milliseconds()
        y = call()
        first = milliseconds() - begin
        # Until the first result: engines differ in what they leave to the first call.
        answer({"compile_ms": begin - start, "first_call_ms": first})
        for line in sys.stdin:
            word, *rest = line.split()
            if word == "run":
                times, end = [], milliseconds() + 1e3 * float(rest[0])
                while len(times) < 3 or milliseconds() < end:
                    begin = milliseconds()
                    y = call()
                    times.append(milliseconds() - begin)
                answer({"ms": times})
            elif word == "save":
                np.savez(rest[0], out0=np.array(y))
                answer({})
            elif word == "memory":
                answer({"peak_bytes": peak_resident()})
            else:
                answer({"error": "unknown command " + word})


main()
