// SPDX-License-Identifier: Apache-2.0
// The part of building a plan that talks to backends: their kernels for its steps, and where the constants that these read lie.
#pragma once

#include "support/error.hpp"
#include "tessera/abi.h"

namespace tessera::core {

class Graph;
class Plan;
struct CompileOptions;
struct Factory;

// A backend has failed to compile what it had claimed.
class KernelError : public Error {
 public:
  KernelError(const Error& e, const std::string& message, const Factory& b, tsr_id n)
      : Error(e.family(), e.code(), message, e.hint()), backend(&b), node(n) {}
  const Factory* backend;
  tsr_id node;  // TSR_NONE: all that it was asked for
};

// Compiles the kernel of every step that has a backend, those of nested plans too, or takes it from the cache
// (options.restore). Each backend hears of all its kernels of one plan (prepare) before it is asked for the first. Then
// constants that lie on another device, or not on 64 bytes, are copied, now that it is known who reads them: what kernels have
// in a form of their own stays where it is, and so does what is large and read by kernels that do not care. Adds to the plan's
// pack_seconds and byte counts. Throws what backends report, with the node's place, as KernelError.
void compile_kernels(Graph& graph, Plan& plan, const CompileOptions& options);

// A kernel that takes an operand in any strides or alignment, whatever its backend says of all of them, reads it where it lies:
// what copies it for that kernel alone is taken out. compile_kernels() has done that; before, by what steps say of kernels.
void drop_copies(Plan& plan);

}  // namespace tessera::core
