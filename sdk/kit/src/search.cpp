// SPDX-License-Identifier: Apache-2.0
#include "tessera/kit/search.hpp"

#include <algorithm>
#include <charconv>

namespace tessera::kit {
namespace {

constexpr int kMostRegisters = 4;  // of a value side by side; columns of a reduction, which have no chains to keep, take 16
constexpr int kMostColumnRegisters = 16;
constexpr int64_t kLeastBlock = 256, kMostBlock = 1 << 16;  // points of a unit of pointwise work
constexpr int64_t kLeastTile = 32, kMostTile = 512;

// What a schedule is, and with it which of its numbers are free.
enum class Shape { kScalar, kRows, kColumns, kRowByRow, kPointwise, kTiled };

Shape shape_of(const Kernel& k, const Schedule& s) {
  if (s.lane_axis == kNone || s.width == 1) return Shape::kScalar;
  if (s.tile_axis != kNone) return Shape::kTiled;
  if (s.lanes_in_loop) return Shape::kRows;
  if (s.row_by_row) return Shape::kRowByRow;
  return k.loops.empty() ? Shape::kPointwise : Shape::kColumns;
}

int64_t multiple(int64_t x, int64_t unit) { return std::max<int64_t>(1, (x + unit - 1) / unit) * unit; }

class Space {
 public:
  Space(Kernel& k, const Schedule& start, const Device& d) : k_(k), start_(start), shape_(shape_of(k, start)) {
    const int lanes = std::max(1, d.vector_bytes / 4);
    least_ = std::min(start.width, std::max(1, lanes / 2));  // eight bytes an element
    most_ = std::max(start.width, lanes * (shape_ == Shape::kColumns ? kMostColumnRegisters : kMostRegisters));
    // No more lanes than there are points.
    const auto n = k_.pool.as_number(k_.pool.extent(start.lane_axis == kNone ? 0 : start.lane_axis));
    while (start.lane_axis != kNone && n && most_ > start.width && most_ / 2 >= *n) most_ /= 2;
  }

  std::vector<Choice> around(const Choice& c, int coordinate) const {
    std::vector<Choice> out;
    const auto add = [&](Choice x) {
      if (x != c && allowed(x) && std::find(out.begin(), out.end(), x) == out.end()) out.push_back(x);
    };
    if (coordinate == 0 && free_width()) {
      for (const int w : {c.width / 2, c.width * 2}) {
        Choice x = c;
        x.width = w;
        if (w < least_ || w > most_) continue;
        x.block = shape_ == Shape::kColumns ? w : shape_ == Shape::kPointwise ? multiple(c.block, w) : c.block;
        add(x);
      }
    }
    if (coordinate == 1 && free_block()) {
      for (const int64_t b : {c.block / 4, c.block / 2, c.block * 2, c.block * 4}) {
        Choice x = c;
        x.block = multiple(b, c.width);
        add(x);
      }
    }
    if (coordinate == 2 && shape_ == Shape::kTiled) {
      if (start_.double_buffers) {
        Choice x = choice_of(start_);
        if (c.double_buffers) x.double_buffers = false, x.tile_points = 128, x.block = multiple(64, c.width);
        add(x);
      }
      if (!c.double_buffers) {
        for (const int64_t t : {c.tile_points / 2, c.tile_points * 2}) {
          Choice x = c;
          x.tile_points = t;
          add(x);
        }
      }
    }
    return out;
  }

  // What around() reaches in any number of steps, and what the emitters take.
  bool allowed(const Choice& c) const {
    const Choice s = choice_of(start_);
    if (c == s) return true;
    if (shape_ == Shape::kScalar || c.width < 1 || c.block < 1 || c.tile_points < 1) return false;
    if (c.double_buffers) return false;  // only as the model has it, in blocks of one size
    if (!free_width() && c.width != s.width) return false;
    if (c.width < least_ || c.width > most_ || (c.width & (c.width - 1)) != 0) return false;
    switch (shape_) {
      case Shape::kScalar: return false;
      case Shape::kRows: return c.block == s.block && c.tile_points == s.tile_points;
      case Shape::kColumns: return c.block == c.width && c.tile_points == s.tile_points;
      case Shape::kRowByRow:
        return c.block % c.width == 0 && c.block <= kMostBlock && c.tile_points == s.tile_points && fits_stack(c);
      case Shape::kPointwise:
        return c.block % c.width == 0 && c.block >= std::min(kLeastBlock, s.block) && c.block <= kMostBlock &&
               c.tile_points == s.tile_points;
      case Shape::kTiled:
        return c.block % c.width == 0 && c.block <= kMostTile && c.tile_points % c.width == 0 && c.tile_points >= kLeastTile &&
               c.tile_points <= kMostTile;
    }
    return false;
  }

 private:
  bool free_width() const { return shape_ == Shape::kRows || shape_ == Shape::kColumns || shape_ == Shape::kPointwise; }
  bool free_block() const {
    return shape_ == Shape::kRowByRow || shape_ == Shape::kPointwise || (shape_ == Shape::kTiled && !start_.double_buffers);
  }
  // Running values of a unit that goes row by row are on the stack: up to 32 for each of its columns.
  bool fits_stack(const Choice& c) const { return c.block <= std::max<int64_t>(1024, start_.block); }

  Kernel& k_;
  const Schedule& start_;
  Shape shape_;
  int least_ = 1, most_ = 1;
};

// Takes "NAME NUMBER" from the front of `text`.
bool take(std::string_view& text, std::string_view name, int64_t* out) {
  if (!text.starts_with(name)) return false;
  text.remove_prefix(name.size());
  if (text.empty() || text[0] != ' ') return false;
  text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  if (!text.empty() && text[0] == ' ') text.remove_prefix(1);
  return true;
}

}  // namespace

Choice choice_of(const Schedule& s) { return {s.width, s.block, s.tile_points, s.double_buffers}; }

Schedule with_choice(Schedule s, const Choice& c) {
  s.width = c.width;
  s.block = c.block;
  s.tile_points = c.tile_points;
  s.double_buffers = c.double_buffers;
  return s;
}

std::vector<Choice> neighbours(Kernel& k, const Schedule& start, const Device& device, const Choice& c, int coordinate) {
  return Space(k, start, device).around(c, coordinate);
}

std::string to_text(const Choice& c) {
  return "width " + std::to_string(c.width) + " block " + std::to_string(c.block) + " tile " + std::to_string(c.tile_points) +
         " ahead " + std::to_string(c.double_buffers ? 1 : 0);
}

std::optional<Choice> parse_choice(std::string_view text, Kernel& k, const Schedule& start, const Device& device) {
  int64_t width = 0, block = 0, tile = 0, ahead = 0;
  if (!take(text, "width", &width) || !take(text, "block", &block) || !take(text, "tile", &tile) ||
      !take(text, "ahead", &ahead) || !text.empty() || width < 1 || width > 4096 || ahead < 0 || ahead > 1)
    return std::nullopt;
  const Choice c{static_cast<int>(width), block, tile, ahead != 0};
  if (!Space(k, start, device).allowed(c)) return std::nullopt;
  return c;
}

}  // namespace tessera::kit
