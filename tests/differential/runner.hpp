// SPDX-License-Identifier: Apache-2.0
// One op as a program, and the two backends that run it.
#pragma once

#include <string>
#include <vector>

#include "conformance/tensors.hpp"
#include "tessera/embed.hpp"

namespace tessera::differential {

namespace e = tessera::embed;
using namespace conformance;  // cases, tensors, tolerances

// The context of all tests here: op set, eager, reference and null, no passes. Made on first use.
const e::Context& context();

// `text` is one graph. Throws e::Error. Backends: "eager", "reference", "null", or "cpu:ISA" for the cpu backend with eager
// behind it, "cpu+2x2:ISA" for the same with winograd = "2x2", "cpu+fuse:ISA" with the pass fuse, "cpu+fuse+relaxed:ISA" with
// relaxed numerics too, "cpu+fuse+plain:ISA" with strassen = false, "cpu+fuse+small:ISA" with pays_after = 1000, "cuda" for it
// with the reference behind it; "sim:32" and "sim:64" for sim with kernels = "text" at that wave, "programs:32" and
// "programs:64" for programs of the SIMT family by the interpreter, "sim+fuse:32" and "programs+fuse:32" with the pass fuse,
// "cpu+fuse+map:ISA" with the pass map_batch for whatever batch there is, "cpu+fuse+threadsN:ISA" on N threads.
e::Executable compile(const std::string& text, const std::string& backend);
// "cpu:baseline", "cpu:avx2", ...: every instruction set that this machine has; empty without the cpu backend.
std::vector<std::string> cpu_backends();

}  // namespace tessera::differential
