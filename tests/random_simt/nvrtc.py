# SPDX-License-Identifier: Apache-2.0
"""Compiles the text for CUDA of many kernels with NVRTC to machine code for described devices; no GPU is needed.

    python nvrtc.py FOLDER [--part N] [--list] [--library FILE]

FOLDER has a folder for each architecture with one file for each kernel, as the backend of tests/random_simt writes them with
PROGRAMS_TEXT=FOLDER. Printed are, for each architecture, how many kernels there are, their registers and shared memory, and what
lies in local memory: registers that were spilled, and arrays that could not stay in registers. A spill that spills.txt does not
name is a failure, and so is a text that does not compile. --part N takes every N-th kernel, --list prints one line for each.

Needs nvidia-cuda-nvrtc from PyPI (or a CUDA toolkit).
"""

import argparse
import concurrent.futures
import ctypes
import glob
import os
import re
import site
import statistics
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
# As the backend has them (backends/cuda/compiler.cpp), and the assembler's report.
OPTIONS = ["--std=c++17", "--fmad=false", "--device-as-default-execution-space", "--ptxas-options=-v", "-diag-suppress=177"]


def find_library():
    folders = [os.path.join(f, "nvidia", "*", "lib") for f in site.getsitepackages()]
    folders += [os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "lib64")]
    for folder in folders:
        for name in sorted(glob.glob(os.path.join(folder, "libnvrtc.so*"))):
            return name
    sys.exit("nvrtc.py: there is no libnvrtc.so; pip install nvidia-cuda-nvrtc, or set CUDA_HOME")


class Nvrtc:
    def __init__(self, path):
        self.api = ctypes.CDLL(path)

    def compile(self, text, architecture):
        """(compiled?, log)"""
        program = ctypes.c_void_p()
        self.api.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernel.cu", 0, None, None)
        options = [o.encode() for o in ["--gpu-architecture=" + architecture] + OPTIONS]
        result = self.api.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
        size = ctypes.c_size_t()
        self.api.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value + 1)
        self.api.nvrtcGetProgramLog(program, log)
        self.api.nvrtcDestroyProgram(ctypes.byref(program))
        return result == 0, log.value.decode(errors="replace")


def measures(log):
    """Of each entry function: (name, registers, shared bytes, bytes of stack, bytes of spills)"""
    out = []
    for part in log.split("Compiling entry function '")[1:]:
        number = lambda pattern: max([int(x) for x in re.findall(pattern, part)], default=0)
        out.append((part.split("'")[0], number(r"Used (\d+) registers"), number(r"(\d+)(?:\+\d+)? bytes smem"),
                    number(r"(\d+) bytes stack frame"), number(r"(\d+) bytes spill stores")))
    return out


nvrtc = None


def start(library):
    global nvrtc
    nvrtc = Nvrtc(library)


def work(path):
    with open(path) as f:
        text = f.read()
    architecture = os.path.basename(os.path.dirname(path))
    compiled, log = nvrtc.compile(text, architecture)
    ops, schedule = [line[3:] for line in text.rstrip().split("\n")[-2:]]
    return path, architecture, ops, schedule, compiled, log


def allowed_spills():
    with open(os.path.join(HERE, "spills.txt")) as f:
        return [re.compile(line.split("//")[0].strip()) for line in f if line.split("//")[0].strip()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--part", type=int, default=1)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--library")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    a = parser.parse_args()
    library = a.library or find_library()
    files = sorted(glob.glob(os.path.join(a.folder, "*", "*.cu")))
    names = sorted({os.path.basename(f) for f in files})[:: a.part]
    chosen = set(names)
    files = [f for f in files if os.path.basename(f) in chosen]
    allowed, failed, results = allowed_spills(), 0, {}
    with concurrent.futures.ProcessPoolExecutor(a.jobs, initializer=start, initargs=(library,)) as pool:
        for path, architecture, ops, schedule, compiled, log in pool.map(work, files, chunksize=8):
            if not compiled:
                failed += 1
                print(f"FAIL {path}: {ops}; {schedule}\n{log[:2000]}")
                continue
            for name, registers, shared, stack, spills in measures(log):
                results.setdefault(architecture, []).append((registers, shared, stack, spills))
                where = f"{architecture} {os.path.basename(path)} {name}: {registers} registers, {shared} bytes of shared memory, " \
                        f"{stack} of stack, {spills} of spills: {ops}; {schedule}"
                named = any(p.search(f"{architecture}: {ops}; {schedule}") for p in allowed)
                if spills and not named:
                    failed += 1
                    print("FAIL", where)
                elif a.list or spills or stack:
                    print("    ", where)
    for architecture, all_ in sorted(results.items()):
        registers = [r[0] for r in all_]
        print(f"{architecture}: {len(all_)} kernels compile; registers {statistics.median(registers):.0f} in the middle, "
              f"{max(registers)} at most; shared memory {max(r[1] for r in all_)} bytes at most; "
              f"{sum(r[2] > 0 for r in all_)} have arrays in local memory, {sum(r[3] > 0 for r in all_)} spill")
    if not results or failed:
        sys.exit(f"{failed} failures" if results else "nvrtc.py: no kernel in " + a.folder)


if __name__ == "__main__":
    main()
