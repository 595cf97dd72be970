// SPDX-License-Identifier: Apache-2.0
// What a search may try around the schedule that the analytic model chose: one number at a time (coordinate descent). No choice
// changes a bit.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/kit/schedule.hpp"

namespace tessera::kit {

// The numbers of a schedule that are free; the rest follows from the kernel.
struct Choice {
  int width = 1;
  int64_t block = 1, tile_points = 1;
  bool double_buffers = false;
  bool operator==(const Choice&) const = default;
};

inline constexpr int kCoordinates = 3;  // width, block, and how a transposed tile is walked

Choice choice_of(const Schedule& s);
// `s` with these numbers; `s` is what choose_schedule gave for the kernel.
Schedule with_choice(Schedule s, const Choice& c);

// Choices that differ from `c` along one coordinate (0 .. kCoordinates - 1), all of which the emitters take for `k`; `start` is
// what choose_schedule gave. Maybe none.
std::vector<Choice> neighbours(Kernel& k, const Schedule& start, const Device& device, const Choice& c, int coordinate);

// "width 16 block 4096 tile 1 ahead 0", and back. Nothing: this is no such text, or no choice that neighbours() could reach
// from `start`.
std::string to_text(const Choice& c);
std::optional<Choice> parse_choice(std::string_view text, Kernel& k, const Schedule& start, const Device& device);

}  // namespace tessera::kit
