// SPDX-License-Identifier: Apache-2.0
// Which algorithm of a library computes a problem, where a plan asks that they are measured (max_autotune).
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "gpu.hpp"
#include "tessera/kit/choices.hpp"
#include "tessera/kit/measuring.hpp"

namespace tessera::cuda {

// What has been decided, and the time for deciding more. By default nobody asks, and the library's own ranking holds.
struct Algorithms {
  const kit::Choices* records = nullptr;
  const kit::MeasuringBudget* budget = nullptr;  // null: what has been decided holds, and nothing is measured
  bool asked() const { return records != nullptr; }
  bool may_measure() const { return asked() && budget && !budget->spent(); }
};

// All that a decision depends on: what is computed, by which library, on which device.
std::string algorithm_problem(const Gpu& gpu, std::string_view library, std::string_view what,
                              std::initializer_list<int64_t> numbers);

// A record is text: the bytes of a choice of cuBLASLt, two hexadecimal digits each.
std::string to_hexadecimal(std::string_view bytes);
std::optional<std::string> from_hexadecimal(std::string_view text);  // nothing: it is none

}  // namespace tessera::cuda
