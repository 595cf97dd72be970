// SPDX-License-Identifier: Apache-2.0
// From the options of a command to a compiled model, with the time of each stage.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "command.hpp"
#include "inputs.hpp"
#include "options.hpp"
#include "signature.hpp"
#include "terminal.hpp"

namespace tessera::command {

// --config, --set, --plugin-dir and, for commands that run models, --threads.
struct ContextArguments {
  std::string config;  // empty: the default config
  std::vector<std::string> overrides, plugin_dirs;
  int64_t threads = 0;
  void add_to(Options&, bool with_config = true, bool with_threads = true);
  [[nodiscard]] embed::ContextOptions options() const;
};

struct Session {
  embed::Context context;
  Signature signature;
  embed::Executable executable;
  double load_ms;                 // reading and importing the model
  double compile_ms;              // from the graph to a ready executable, passes included, without packing
  double pack_ms;                 // rearranging constants for kernels
  int64_t threads;                // of its calls
  std::vector<double> explained;  // of each output: the error that rounding explains (bounds.hpp)
};
// `inputs`: of the calls, see load_model(); null: the model is imported without a call.
Session open_session(const ContextArguments& arguments, const std::string& model, Progress& progress,
                     InputArguments* inputs = nullptr);

// The devices whose memory a model can use: those of its values, and the host.
std::vector<tsr_device> devices_of(const embed::Executable& executable);
int64_t memory_in_use(const std::vector<tsr_device>& devices);
int64_t memory_peak(const std::vector<tsr_device>& devices, bool reset);

double now_ms();  // steady

}  // namespace tessera::command
