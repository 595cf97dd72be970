// SPDX-License-Identifier: Apache-2.0
// The one unit that includes LLVM and clang. Text goes through a CompilerInvocation over an empty in-memory file system to LLVM
// IR, through a pipeline of our own to an object, and ORC links that into the process. Nothing is read from the disk and no
// process is started.
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <clang/Basic/DiagnosticOptions.h>
#include <clang/Basic/FileManager.h>
#include <clang/CodeGen/CodeGenAction.h>
#include <clang/Frontend/CompilerInstance.h>
#include <clang/Frontend/CompilerInvocation.h>
#include <clang/Frontend/TextDiagnosticPrinter.h>
#include <clang/Lex/PreprocessorOptions.h>
#include <llvm/Analysis/TargetLibraryInfo.h>
#include <llvm/Config/llvm-config.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/SmallVectorMemoryBuffer.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/VirtualFileSystem.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/Transforms/IPO/AlwaysInliner.h>
#include <llvm/Transforms/InstCombine/InstCombine.h>
#include <llvm/Transforms/Scalar/DCE.h>
#include <llvm/Transforms/Scalar/EarlyCSE.h>
#include <llvm/Transforms/Scalar/IndVarSimplify.h>
#include <llvm/Transforms/Scalar/LICM.h>
#include <llvm/Transforms/Scalar/LoopPassManager.h>
#include <llvm/Transforms/Scalar/LoopRotation.h>
#include <llvm/Transforms/Scalar/LoopUnrollPass.h>
#include <llvm/Transforms/Scalar/SROA.h>
#include <llvm/Transforms/Scalar/SimplifyCFG.h>
#include <llvm/Transforms/Vectorize/LoopVectorize.h>

#include "jit_api.h"

namespace {

constexpr const char* kTriple = "x86_64-unknown-linux-gnu";

void initialise_llvm() {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
  });
}

void put(const cpu_jit_sink& sink, llvm::StringRef text) { sink.put(sink.self, text.data(), text.size()); }

// ------------------------------------------------------------------------------------------------------- text to IR

std::unique_ptr<llvm::Module> to_ir(const cpu_jit_request& r, llvm::LLVMContext& context, std::string& messages) {
  llvm::raw_string_ostream out(messages);
  llvm::IntrusiveRefCntPtr<clang::DiagnosticOptions> options(new clang::DiagnosticOptions);
  options->ShowPresumedLoc = true;
  auto printer = std::make_unique<clang::TextDiagnosticPrinter>(out, options.get());

  // As the driver would call the compiler proper. No contraction, no errno, no traps, no unwinding: what docs on numerics ask
  // for.
  std::vector<const char*> arguments = {"-triple",
                                        kTriple,
                                        "-emit-llvm-only",
                                        "-disable-llvm-passes",
                                        "-x",
                                        "c++",
                                        "-std=c++20",
                                        "-O2",
                                        "-ffp-contract=off",
                                        "-fno-rounding-math",
                                        "-ffp-exception-behavior=ignore",
                                        "-mrelocation-model",
                                        "pic",
                                        "-pic-level",
                                        "2",
                                        "-mframe-pointer=none",
                                        "-fno-rtti",
                                        "-fopenmp-simd",
                                        "-nostdsysteminc",
                                        "-nobuiltininc",
                                        "-Wno-psabi",
                                        "-Wno-pass-failed",
                                        "-ferror-limit",
                                        "5",
                                        "-target-cpu",
                                        r.cpu};
  for (size_t i = 0; i < r.num_features; ++i) {
    arguments.push_back("-target-feature");
    arguments.push_back(r.features[i]);
  }
  const std::string width = "-mprefer-vector-width=" + std::to_string(r.vector_bits);
  arguments.push_back(width.c_str());
  arguments.push_back(r.name);

  clang::DiagnosticsEngine early(new clang::DiagnosticIDs, options, printer.get(), /*ShouldOwnClient=*/false);
  auto invocation = std::make_shared<clang::CompilerInvocation>();
  if (!clang::CompilerInvocation::CreateFromArgs(*invocation, arguments, early)) return nullptr;
  invocation->getPreprocessorOpts().addRemappedFile(
      r.name, llvm::MemoryBuffer::getMemBuffer({r.text, r.length}, r.name, /*RequiresNullTerminator=*/true).release());

  clang::CompilerInstance compiler;
  compiler.setVerboseOutputStream(llvm::nulls());  // "1 error generated."
  compiler.setInvocation(std::move(invocation));
  compiler.createDiagnostics(printer.get(), /*ShouldOwnClient=*/false);
  compiler.createFileManager(llvm::makeIntrusiveRefCnt<llvm::vfs::InMemoryFileSystem>());
  clang::EmitLLVMOnlyAction action(&context);
  const bool ok = compiler.ExecuteAction(action);
  return ok ? action.takeModule() : nullptr;
}

// ------------------------------------------------------------------------------------------------------ IR to object

// Kernels arrive with explicit vectors or with simd pragmas, helpers as always_inline: what is left to do is to bring values
// into registers, simplify, move invariants out of loops, and unroll and vectorise where a pragma says so.
void minimal_pipeline(llvm::ModulePassManager& module) {
  using namespace llvm;
  module.addPass(AlwaysInlinerPass(/*InsertLifetime=*/false));
  FunctionPassManager f;
  f.addPass(SROAPass(SROAOptions::ModifyCFG));
  f.addPass(EarlyCSEPass(/*UseMemorySSA=*/false));
  f.addPass(SimplifyCFGPass());
  f.addPass(InstCombinePass());
  LoopPassManager rotate;
  rotate.addPass(LoopRotatePass());
  rotate.addPass(LICMPass(LICMOptions()));
  f.addPass(createFunctionToLoopPassAdaptor(std::move(rotate), /*UseMemorySSA=*/true, /*UseBlockFrequencyInfo=*/false));
  f.addPass(SimplifyCFGPass());
  f.addPass(InstCombinePass());
  LoopPassManager induction;
  induction.addPass(IndVarSimplifyPass());
  f.addPass(createFunctionToLoopPassAdaptor(std::move(induction)));
  f.addPass(LoopVectorizePass(LoopVectorizeOptions(/*InterleaveOnlyWhenForced=*/true, /*VectorizeOnlyWhenForced=*/true)));
  f.addPass(LoopUnrollPass(LoopUnrollOptions(2, /*OnlyWhenForced=*/true)));
  f.addPass(SROAPass(SROAOptions::ModifyCFG));
  f.addPass(EarlyCSEPass(/*UseMemorySSA=*/true));
  f.addPass(InstCombinePass());
  f.addPass(SimplifyCFGPass());
  f.addPass(DCEPass());
  module.addPass(createModuleToFunctionPassAdaptor(std::move(f)));
}

void optimize(llvm::Module& module, llvm::TargetMachine& target, int level) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(&target);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);
  llvm::ModulePassManager passes;  // made anew for every module: a stock pipeline that is run twice has crashed
  if (level >= 2)
    passes = builder.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O2);
  else
    minimal_pipeline(passes);
  passes.run(module, modules);
}

std::unique_ptr<llvm::TargetMachine> make_target(const cpu_jit_request& r, std::string& messages) {
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(kTriple, messages);
  if (!target) return nullptr;
  std::string features;
  for (size_t i = 0; i < r.num_features; ++i) features += (i ? "," : "") + std::string(r.features[i]);
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  return std::unique_ptr<llvm::TargetMachine>(target->createTargetMachine(
      kTriple, r.cpu, features, options, llvm::Reloc::PIC_, llvm::CodeModel::Small, llvm::CodeGenOptLevel::Default));
}

int compile(const cpu_jit_request* r, cpu_jit_sink object, cpu_jit_sink error) {
  initialise_llvm();
  std::string messages;
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> module = to_ir(*r, context, messages);
  std::unique_ptr<llvm::TargetMachine> target = module ? make_target(*r, messages) : nullptr;
  if (!target) {
    put(error, messages);
    return 0;
  }
  optimize(*module, *target, r->optimize);
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream out(bytes);
  llvm::legacy::PassManager codegen;
  if (target->addPassesToEmitFile(codegen, out, nullptr, llvm::CodeGenFileType::ObjectFile)) {
    put(error, "this LLVM cannot write objects");
    return 0;
  }
  codegen.run(*module);
  put(object, {bytes.data(), bytes.size()});
  return 1;
}

// --------------------------------------------------------------------------------------------------- object to code

struct Session {  // lives as long as the process: modules may be released by static destructors
  std::unique_ptr<llvm::orc::LLJIT> jit;
  std::string failure;
  std::atomic<uint64_t> modules{0};
  static Session& get() {
    static Session* session = [] {
      initialise_llvm();
      auto* s = new Session;
      llvm::orc::JITTargetMachineBuilder machine{llvm::Triple(kTriple)};
      auto made = llvm::orc::LLJITBuilder()
                      .setJITTargetMachineBuilder(std::move(machine))
                      .setPlatformSetUp(llvm::orc::setUpInactivePlatform)  // kernels have no constructors
                      .create();
      if (made) {
        s->jit = std::move(*made);
        // What fails is returned to the caller too; by default it would be printed as well.
        s->jit->getExecutionSession().setErrorReporter([](llvm::Error e) { llvm::consumeError(std::move(e)); });
      } else {
        s->failure = llvm::toString(made.takeError());
      }
      return s;
    }();
    return *session;
  }
};

cpu_jit_module* link(const char* object, size_t length, const char* const* symbols, size_t count, void** addresses,
                     cpu_jit_sink error) {
  Session& s = Session::get();
  const auto fail = [&](llvm::Error e) -> cpu_jit_module* {
    put(error, llvm::toString(std::move(e)));
    return nullptr;
  };
  if (!s.jit) {
    put(error, s.failure);
    return nullptr;
  }
  const std::string name = "kernels" + std::to_string(s.modules.fetch_add(1));
  llvm::Expected<llvm::orc::JITDylib&> made = s.jit->createJITDylib(name);
  if (!made) return fail(made.takeError());
  llvm::orc::JITDylib& library = *made;
  const auto drop = [&](llvm::Error e) {
    llvm::consumeError(s.jit->getExecutionSession().removeJITDylib(library));
    return fail(std::move(e));
  };
  if (llvm::Error e = s.jit->addObjectFile(library, llvm::MemoryBuffer::getMemBufferCopy({object, length}, name)))
    return drop(std::move(e));
  for (size_t i = 0; i < count; ++i) {
    llvm::Expected<llvm::orc::ExecutorAddr> found = s.jit->lookup(library, symbols[i]);
    if (!found) return drop(found.takeError());
    addresses[i] = found->toPtr<void*>();
  }
  return reinterpret_cast<cpu_jit_module*>(&library);
}

void unlink(cpu_jit_module* module) {
  if (module)
    llvm::consumeError(
        Session::get().jit->getExecutionSession().removeJITDylib(*reinterpret_cast<llvm::orc::JITDylib*>(module)));
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const cpu_jit_api* tessera_cpu_jit(void) {
  static const cpu_jit_api api = {CPU_JIT_API_VERSION, LLVM_VERSION_STRING, compile, link, unlink};
  return &api;
}
