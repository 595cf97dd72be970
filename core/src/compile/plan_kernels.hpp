// SPDX-License-Identifier: Apache-2.0
// The part of building a plan that talks to backends: their kernels for its steps, and where the constants that these read lie.
#pragma once

namespace tessera::core {

class Graph;
class Plan;
struct CompileOptions;

// Compiles the kernel of every step that has a backend, those of nested plans too, or takes it from the cache (options.restore).
// Each backend hears of all its kernels of one plan (prepare) before it is asked for the first. Then constants that lie on another
// device, or not on 64 bytes, are copied, now that it is known who reads them: what kernels have in a form of their own stays where
// it is, and so does what is large and read by kernels that do not care. Adds to the plan's pack_seconds and byte counts. Throws
// what backends report, with the node's place.
void compile_kernels(Graph& graph, Plan& plan, const CompileOptions& options);

}  // namespace tessera::core
