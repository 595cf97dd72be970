// SPDX-License-Identifier: Apache-2.0
// Choices that are measured on this machine instead of predicted: which way a product or a convolution is computed
// (max_autotune), and how a generated kernel is spread over vectors and units (coordinate_descent_tuning). What was decided is
// kept and holds for the problem from then on. Artifact "autotuning" tells every decision with its times.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "generated.hpp"
#include "jit/compiler.hpp"
#include "tessera/kit/search.hpp"
#include "tessera/plugin.hpp"
#include "tuning/choices.hpp"
#include "tuning/trial.hpp"

namespace cpu {

class Tuner {
 public:
  // `compiler`: how candidates are compiled; `directory`: of the cache, for decisions. `most_winograd`: as make_conv takes it;
  // `strassen`: whether products may be computed so.
  Tuner(Compiler::Options compiler, std::string directory, const Isa& isa, const tessera::kit::Device& device,
        int most_winograd, bool strassen);

  // Whether the request wants these choices (TSR_TUNE_*) measured. Not in loops: their turns share the threads, and what a
  // kernel takes there is not what it takes alone.
  static bool asked(const tessera::sdk::Compile& c, uint32_t what);
  // Whether the node has ways to be told apart: a product, or a convolution that is no depthwise one.
  static bool has_ways(const tessera::sdk::Node& node);
  // Decides for those of the requests that nothing is known about, as long as the budget lasts. Thread-safe, as everything
  // here.
  void choose_ways(std::span<const tessera::sdk::Compile* const> requests, const Budget& budget);
  // By what was decided; by what is predicted where nothing was, or where the request does not ask for tuning.
  std::unique_ptr<tessera::sdk::Kernel> make(const tessera::sdk::Compile& c) const;

  // The schedule that was decided for what `d` computes; nothing: the model's.
  std::optional<tessera::kit::Choice> schedule_of(const tessera::sdk::Compile& c, WrittenKernel& d) const;
  // Decides where nothing is known yet.
  void choose_schedule(const tessera::sdk::Compile& c, WrittenKernel& d, const Budget& budget);

 private:
  bool has_onednn() const;
  std::vector<std::string> ways(const tessera::sdk::Compile& c) const;
  std::unique_ptr<tessera::sdk::Kernel> make_way(const tessera::sdk::Compile& c, const std::string& way) const;
  std::unique_ptr<tessera::sdk::Kernel> generate(const tessera::sdk::Compile& c, const tessera::kit::Choice& choice);

  Compiler::Options options_;
  Choices choices_;
  const Isa& isa_;
  tessera::kit::Device device_;
  int most_winograd_;
  bool strassen_;
};

}  // namespace cpu
