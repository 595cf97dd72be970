# SPDX-License-Identifier: Apache-2.0
"""Compiles the text for CUDA of many kernels with NVRTC to machine code for described devices; no GPU is needed.

    python nvrtc.py FOLDER [--part N] [--list] [--load] [--library FILE]

FOLDER has a folder for each architecture with one file for each kernel, as the backend of tests/random_simt writes them with
PROGRAMS_TEXT=FOLDER. Printed are, for each architecture, how many kernels there are, their registers and shared memory, and what
lies in local memory: registers that were spilled, and arrays that could not stay in registers. A spill that spills.txt does not
name is a failure, and so is a text that does not compile. --part N takes every N-th kernel, --list prints one line for each.

--load gives the kernels of the architecture that this machine's first GPU has to its driver: one that the driver does not take, or
that the GPU cannot start with the number of threads its text declares, is a failure too.

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
# An entry function: the threads of a block that its text declares, and its name.
ENTRY = re.compile(r"^KERNEL\((\d+)\) void (\w+)\(", re.M)
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
        """(machine code, or None where the text does not compile; log)"""
        program = ctypes.c_void_p()
        self.api.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernel.cu", 0, None, None)
        options = [o.encode() for o in ["--gpu-architecture=" + architecture] + OPTIONS]
        result = self.api.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
        size = ctypes.c_size_t()
        self.api.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value + 1)
        self.api.nvrtcGetProgramLog(program, log)
        code = None
        if result == 0:
            self.api.nvrtcGetCUBINSize(program, ctypes.byref(size))
            code = ctypes.create_string_buffer(size.value)
            self.api.nvrtcGetCUBIN(program, code)
        self.api.nvrtcDestroyProgram(ctypes.byref(program))
        return code, log.value.decode(errors="replace")


class Card:
    """The first GPU of this machine, by its driver."""

    MAX_THREADS_PER_BLOCK, MAJOR, MINOR = 0, 75, 76  # CU_FUNC_ATTRIBUTE_..., CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_...

    def __init__(self):
        self.api = ctypes.CDLL("libcuda.so.1")
        device, context, major, minor = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_int(), ctypes.c_int()
        self.ask("cuInit", 0)
        self.ask("cuDeviceGet", ctypes.byref(device), 0)
        self.ask("cuDeviceGetAttribute", ctypes.byref(major), self.MAJOR, device)
        self.ask("cuDeviceGetAttribute", ctypes.byref(minor), self.MINOR, device)
        self.ask("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.ask("cuCtxSetCurrent", context)
        self.architecture = f"sm_{major.value}{minor.value}" + ("a" if major.value == 9 else "")

    def ask(self, function, *arguments):
        error = getattr(self.api, function)(*arguments)
        if error:
            text = ctypes.c_char_p()
            self.api.cuGetErrorString(error, ctypes.byref(text))
            raise RuntimeError(f"{function}: {(text.value or b'error %d' % error).decode()}")

    def load(self, code, threads_of):
        """What is wrong with this machine code, or nothing. threads_of: of each entry function, the threads its text declares."""
        module = ctypes.c_void_p()
        try:
            self.ask("cuModuleLoadData", ctypes.byref(module), code)
            for name, threads in threads_of.items():
                function, most = ctypes.c_void_p(), ctypes.c_int()
                self.ask("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
                self.ask("cuFuncGetAttribute", ctypes.byref(most), self.MAX_THREADS_PER_BLOCK, function)
                if most.value < threads:
                    return f"{name}: its text declares {threads} threads, the GPU starts {most.value} at most"
            self.ask("cuModuleUnload", module)
        except RuntimeError as error:
            return str(error)
        return ""


def measures(log):
    """Of each entry function: (name, registers, shared bytes, bytes of stack, bytes of spills)"""
    out = []
    for part in log.split("Compiling entry function '")[1:]:
        number = lambda pattern: max([int(x) for x in re.findall(pattern, part)], default=0)
        out.append((part.split("'")[0], number(r"Used (\d+) registers"), number(r"(\d+)(?:\+\d+)? bytes smem"),
                    number(r"(\d+) bytes stack frame"), number(r"(\d+) bytes spill stores")))
    return out


nvrtc, card = None, None


def start(library, load):
    global nvrtc, card
    nvrtc = Nvrtc(library)
    card = Card() if load else None


def work(path):
    with open(path) as f:
        text = f.read()
    architecture = os.path.basename(os.path.dirname(path))
    code, log = nvrtc.compile(text, architecture)
    ops, schedule = [line[3:] for line in text.rstrip().split("\n")[-2:]]
    here = code and card and card.architecture == architecture
    refused = card.load(code, {name: int(threads) for threads, name in ENTRY.findall(text)}) if here else ""
    return path, architecture, ops, schedule, bool(code), log, bool(here), refused


def allowed_spills():
    with open(os.path.join(HERE, "spills.txt")) as f:
        return [re.compile(line.split("//")[0].strip()) for line in f if line.split("//")[0].strip()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--part", type=int, default=1)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--load", action="store_true")
    parser.add_argument("--library")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    a = parser.parse_args()
    library = a.library or find_library()
    files = sorted(glob.glob(os.path.join(a.folder, "*", "*.cu")))
    names = sorted({os.path.basename(f) for f in files})[:: a.part]
    chosen = set(names)
    files = [f for f in files if os.path.basename(f) in chosen]
    allowed, failed, loaded, results = allowed_spills(), 0, 0, {}
    with concurrent.futures.ProcessPoolExecutor(a.jobs, initializer=start, initargs=(library, a.load)) as pool:
        for path, architecture, ops, schedule, compiled, log, here, refused in pool.map(work, files, chunksize=8):
            loaded += here
            if refused:
                failed += 1
                print(f"FAIL {path}: the driver does not take it: {refused}: {ops}; {schedule}")
            if not compiled:
                failed += 1
                print(f"FAIL {path}: {ops}; {schedule}\n{log[:2000]}")
                continue
            for name, registers, shared, stack, spills in measures(log):
                results.setdefault(architecture, []).append((registers, shared, stack, spills))
                where = f"{architecture} {os.path.basename(path)} {name}: {registers} registers, {shared} bytes of shared memory, " \
                        f"{stack} of stack, {spills} of spills: {ops}; {schedule}"
                named = any(p.search(f"{architecture} {name}: {ops}; {schedule}") for p in allowed)
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
    if a.load:
        print(f"{loaded} of them were given to the driver of the GPU here")
    if not results or failed or (a.load and not loaded):
        sys.exit(f"{failed} failures" if results else "nvrtc.py: no kernel in " + a.folder)


if __name__ == "__main__":
    main()
