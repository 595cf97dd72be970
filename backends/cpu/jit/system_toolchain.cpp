// SPDX-License-Identifier: Apache-2.0
// The compiler of the system, started as a process without a shell. Files live in a directory of their own under TMPDIR, and no
// longer than it takes to open them.
#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "tessera/plugin.hpp"
#include "toolchains.hpp"

extern char** environ;

namespace cpu {
namespace {

namespace sdk = tessera::sdk;
namespace fs = std::filesystem;

const char* const kNoCompiler = "install a C++ compiler (apt-get install g++), or name one: system_compiler in [cpu]";

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    const char* base = std::getenv("TMPDIR");
    path_ = std::string(base && *base ? base : "/tmp") + "/tessera-cpu-XXXXXX";
    if (!mkdtemp(path_.data()))
      throw sdk::Error(TSR_ENVIRONMENT, "TSR-J003", "cannot create a directory '" + path_ + "': " + std::strerror(errno),
                       "set TMPDIR to a directory that can be written");
  }
  ~TemporaryDirectory() {
    std::error_code e;
    fs::remove_all(path_, e);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  std::string file(const char* name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Runs it with both streams into `output`; the exit status, or -1 when a signal ended it.
int run(std::vector<std::string> arguments, const std::string& output) {
  std::vector<char*> argv;
  for (std::string& a : arguments) argv.push_back(a.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  pid_t child = 0;
  const int failed = posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed)
    throw sdk::Error(TSR_ENVIRONMENT, "TSR-J003", "cannot start '" + arguments[0] + "': " + std::strerror(failed), kNoCompiler);
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR)
      throw sdk::Error(TSR_ENVIRONMENT, "TSR-J003", "lost '" + arguments[0] + "': " + std::strerror(errno), kNoCompiler);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
    throw sdk::Error(TSR_ENVIRONMENT, "TSR-J003", "cannot start '" + arguments[0] + "'", kNoCompiler);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class OpenedModule final : public Module {
 public:
  OpenedModule(const Source& s, const std::string& library) {
    // A file of a name that is never used twice: the dynamic linker takes equal names for equal libraries, even of a memfd.
    const TemporaryDirectory directory;
    const std::string path = directory.file("kernel.so");
    if (!(std::ofstream(path, std::ios::binary) << library).flush())
      throw sdk::Error(TSR_ENVIRONMENT, "TSR-J003", "cannot write '" + path + "'", "set TMPDIR to a directory with room");
    library_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library_)
      throw sdk::Error(TSR_ENVIRONMENT, "TSR-J003", "cannot open the compiled kernel '" + s.name + "': " + dlerror(),
                       "set TMPDIR to a directory from where libraries may be run");
    for (const std::string& symbol : s.symbols) {
      addresses_.push_back(dlsym(library_, symbol.c_str()));
      if (addresses_.back()) continue;
      dlclose(library_);
      fail_text(s, "it does not define '" + symbol + "'");
    }
  }
  ~OpenedModule() override { dlclose(library_); }

 private:
  void* library_ = nullptr;
};

}  // namespace

std::string system_version(const std::string& compiler) {
  const TemporaryDirectory directory;
  const std::string out = directory.file("version");
  if (run({compiler, "--version"}, out) != 0)
    throw sdk::Error(TSR_ENVIRONMENT, "TSR-J003", "'" + compiler + " --version' failed: " + slurp(out), kNoCompiler);
  const std::string text = slurp(out);
  return text.substr(0, text.find('\n'));
}

std::string system_build(const Source& s, const Isa& isa, const std::string& compiler) {
  const TemporaryDirectory directory;
  const std::string text = directory.file("kernel.cpp"), library = directory.file("kernel.so"), log = directory.file("log");
  {
    std::ofstream out(text, std::ios::binary);
    out << "#line 1 \"" << s.name << ".cpp\"\n" << s.text;
    if (!out.flush())
      throw sdk::Error(TSR_ENVIRONMENT, "TSR-J003", "cannot write '" + text + "'", "set TMPDIR to a directory with room");
  }
  std::vector<std::string> command = {compiler,
                                      "-std=c++20",
                                      "-O2",
                                      "-fPIC",
                                      "-shared",
                                      "-nostdlib",
                                      "-ffp-contract=off",
                                      "-fno-math-errno",
                                      "-fno-trapping-math",
                                      "-fno-exceptions",
                                      "-fno-rtti",
                                      "-fno-asynchronous-unwind-tables",
                                      "-fopenmp-simd",
                                      "-fno-stack-protector",
                                      "-fno-semantic-interposition",
                                      "-Wl,-z,defs",
                                      "-w"};
  std::istringstream flags(isa.flags);
  for (std::string flag; flags >> flag;) command.push_back(flag);
  command.insert(command.end(), {"-o", library, text, "-lm", "-lc", "-lgcc"});
  if (run(command, log) != 0) fail_text(s, slurp(log));
  std::string bytes = slurp(library);
  if (bytes.empty()) throw sdk::Error(TSR_ENVIRONMENT, "TSR-J003", "'" + compiler + "' wrote no library", kNoCompiler);
  return bytes;
}

ModulePtr system_load(const Source& s, const std::string& library) { return std::make_shared<OpenedModule>(s, library); }

}  // namespace cpu
