// SPDX-License-Identifier: Apache-2.0
// Debian's clang is built with Polly and names its plugin, which the static libraries of its package do not have: one that does
// nothing.
#include <llvm/Passes/PassPlugin.h>

llvm::PassPluginLibraryInfo getPollyPluginInfo();
llvm::PassPluginLibraryInfo getPollyPluginInfo() {
  return {LLVM_PLUGIN_API_VERSION, "none", "", [](llvm::PassBuilder&) {}};
}
