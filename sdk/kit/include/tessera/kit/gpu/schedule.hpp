// SPDX-License-Identifier: Apache-2.0
// From what a kernel computes to a program of the SIMT family. The numbers of a schedule come from an analytic model of the
// device, or from a search around it; the order of reductions is the family's (program/order.hpp), so no schedule changes a
// bit.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/kit/ir.hpp"
#include "tessera/kit/program/device.hpp"
#include "tessera/kit/program/order.hpp"
#include "tessera/kit/program/program.hpp"

namespace tessera::kit {

enum class SimtForm : uint8_t {
  Pointwise,     // a piece of the tensor for each block, vectors of it for each thread
  Transpose,     // pointwise, with tiles in shared memory for what is read along another axis than is written
  Rows,          // reductions along rows, and what is computed from them: some threads for each row
  Columns,       // one reduction across rows: runs of rows beside each other, partial results folded by later launches
  NormBackward,  // a rows kernel and a columns kernel over the same tensor in one sweep
  Generic,       // one thread for each point, which runs all loops: what fits no other form
  Product,       // a dot, tiles of its operands in shared memory, a rectangle of sums in registers
  Matrix,        // a product of bf16 or f16 on matrix instructions, a rectangle of the tile for each wave
  Group,  // the same on matrix instructions of four waves, tiles of 64 rows for each four, several steps in shared memory
  Split,  // a reduction along rows so few and long that blocks share one: results of chunks, folded by later launches
};
inline constexpr int kNumSimtForms = 10;
const char* form_name(SimtForm f);

struct SimtSchedule {
  SimtForm form = SimtForm::Pointwise;
  int threads = 256;  // of a block; Rows: of a row
  // Rows: of a block, beside each other; NormBackward: in flight; Product: of a thread; Matrix: of a wave; Group: eights of
  // columns of the tile
  int rows = 1;
  int vector =
      1;  // elements of a thread side by side: Pointwise, Columns; Product: columns of a thread; Group: steps in shared memory
  // that the device's copies bring, 1: two that threads write
  // Pointwise: vectors of a thread; Columns: rows in flight; NormBackward: 2 loads a row while the one before is computed, as
  // far as its first loop reads, 4 all of it; Product: length of a step; Split: chunks of a group of 32 threads; Rows: rows of
  // a thread, 2 of them beside each other, more one after the other, each loaded while the one before is computed
  int unroll = 1;
  int tile = 32;            // Transpose, Product, Matrix: side of a tile; Group: its rows
  bool persistent = false;  // Rows: the row stays in registers from one loop to the next
  bool operator==(const SimtSchedule&) const = default;
};
std::string to_text(const SimtSchedule& s);  // "rows threads 128 rows 1 vector 8 unroll 1 tile 32 persistent 1"
std::optional<SimtSchedule> parse_simt_schedule(std::string_view text);

// What the launcher promises beyond the kernel itself: sizes that are multiples, by number of the symbol (empty: of 1).
struct SimtAssume {
  std::vector<int64_t> multiples;
};

// The schedule of last resort, of which every kernel has a program but for reductions with two results.
SimtSchedule generic_schedule(const GpuDescription& device);
// The default choice. Throws sdk::Error TSR-K041 (which a backend takes as "not by this family") for kernels that no form fits.
SimtSchedule choose_simt(Kernel& k, const GpuDescription& device, const SimtOrder& order = {}, const SimtAssume& assume = {});
// Schedules that differ from `s` in one number and make programs that fit the device.
std::vector<SimtSchedule> simt_neighbours(Kernel& k, const SimtSchedule& s, const GpuDescription& device,
                                          const SimtOrder& order = {}, const SimtAssume& assume = {});
// Throws TSR-K041 where the schedule does not fit the kernel or the device. The program is verified.
Program make_program(Kernel& k, const SimtSchedule& s, const GpuDescription& device, const SimtOrder& order = {},
                     const SimtAssume& assume = {});

// The same for the backward pass of a norm: `rows` computes the gradient of the input, `columns` those of weight and bias, over
// tensors of one shape. The program's buffers are those of `rows`, then those of `columns`; a buffer of `columns` that is
// buffer i of `rows` is given as shared[j] = i, and is not listed again; kNone: it is its own. `columns` may read outputs of
// `rows` that have one number for each row. Those of them that `links` names are no buffers of the program: nobody else reads
// them.
SimtSchedule choose_norm_backward(Kernel& rows, Kernel& columns, const GpuDescription& device, const SimtOrder& order = {});
std::vector<SimtSchedule> norm_backward_neighbours(Kernel& rows, Kernel& columns, std::span<const uint32_t> shared,
                                                   const SimtSchedule& s, const GpuDescription& device,
                                                   const SimtOrder& order = {}, std::span<const uint32_t> links = {});
Program make_norm_backward(Kernel& rows, Kernel& columns, std::span<const uint32_t> shared, const SimtSchedule& s,
                           const GpuDescription& device, const SimtOrder& order = {}, std::span<const uint32_t> links = {});

}  // namespace tessera::kit
