// SPDX-License-Identifier: Apache-2.0
// A scheduled kernel as data: which thread of which block computes what, where values lie, and where threads wait for each
// other. A kernel (ir.hpp) says what is computed; a schedule turns it into a Program; an emitter turns that into text, and an
// interpreter runs it as it stands.
//
//   program @row_sum(%x: in bf16[512 * s0], %y: out f32[s0]) symbols(s0 >= 0) wave 32 {
//     launch {
//       register %sum: f32[1]
//       register %x_v: bf16[8]
//       grid b0 < s0 {
//         warp w0 < 1 {
//           lane l0 < 32 {
//             %0 = const 0.0 : f32
//             store %sum[0], %0
//             unroll i0 < 2 {
//               vector v0 < 8 {
//                 %3 = load %x[512 * b0 + 256 * i0 + 8 * l0 + v0] : bf16
//                 store %x_v[v0], %3
//               }
//               ...
//             }
//             %20 = load %sum[0] : f32
//             %21 = shuffle xor 16 %20 : f32
//             ...
//
// Semantics
// - A program is one or more launches, which run one after the other. The outermost loops of a launch are bound to the device:
// `grid` to blocks, `cluster` to blocks that run together and see each other's shared memory, and either `block` to threads or
// `warp` and `lane` to the wave and the thread in it. A wave has as many lanes as the device has (`wave`). Threads are numbered
// row by row: warp * wave + lane.
// - Inside, `serial` and `unroll` loops and `if` are the thread's own. A `vector` loop is one access of several elements side
// by side: one load and the store of what it loaded, from memory to registers or back.
// - `register` buffers belong to a thread, `shared` ones to a block, both without content at first. Buffers of the signature
// are global; `workspace` is global memory without content at first that one launch writes and later ones read.
// - Instructions are those of the kernel IR, `reduce` and `second` aside, with the same numerics. A store has no predicate: an
// `if` stands around it.
// - `barrier block` is passed when all threads of the block have come to it, and what they wrote is then seen by all of them;
// `barrier warp` is the same of one wave.
// - `shuffle xor D %v` is the value that the lane whose number differs in the bits D has; `shuffle from L of W %v` is the value
// of lane L of the thread's group of W lanes. All lanes of the wave take part.
// - `mma bf16 %sums[i], %left[j], %right[k]` is a matrix instruction of a wave of 32 lanes: it adds the product of a 16 x 16
// and a 16 x 8 matrix of bf16 or f16 to a 16 x 8 matrix of f32. Each lane holds its share in registers: with g = lane / 4 and
// t = 2 * (lane % 4), the elements (row, column) of
//     sums   4, from i on:   (g, t) (g, t + 1) (g + 8, t) (g + 8, t + 1)
//     left   8, from j on:   (g, t) (g, t + 1) (g + 8, t) (g + 8, t + 1), then the same four with columns 8 further on
//     right  4, from k on:   (t, g) (t + 1, g) (t + 8, g) (t + 9, g)
// All lanes take part. Products are exact; how their sum is rounded is the device's.
// - `mma_group bf16 %sums[i], %left[j] pitch P, %right[k] pitch Q, columns N depth D` is the same of four waves beside each
// other, on operands in shared memory: it adds the product of a 64 x D and a D x N matrix. In an operand, 64 elements along D
// lie side by side, in pieces of 8 whose order changes from line to line, so that neither a line nor a column of pieces lies in
// one bank; lines (rows of left, columns of right) lie behind each other. Element (line, d) is at
//     P * (d / 64) + 64 * line + 8 * ((d / 8 % 8) xor (line % 8)) + d % 8
// or, in one that is `turned`, 64 lines side by side:
//     P * (line / 64) + 64 * d + 8 * ((line / 8 % 8) xor (d % 8)) + line % 8
// j and k are multiples of 512 in buffers that are aligned to 1,024 bytes.
// Wave w of the four has rows 16 w to 16 w + 15; a lane's sums from i + 4 * (n / 8) on are those of `mma` for columns n to
// n + 7. All threads of the four waves take part, with the same operands. It goes on while they do something else, until
// `mma_wait %sums[i] columns N`: by then nobody may have written to the operands, nor touched the sums.
// - `copy E %to[i], %from[j]` brings E elements side by side, of 4, 8 or 16 bytes in all, from an input to shared memory, and
// goes on while the thread does something else. With `if %v` behind it, zeros come where %v does not hold.
// `copy_end` makes a batch of what the thread has begun to copy since the one before. After `copy_wait P` all of its batches
// but the last P have arrived, which others see behind a barrier; until then nobody may touch where they go.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tessera/kit/ir.hpp"

namespace tessera::kit {

enum class Bind : uint8_t { Grid, Cluster, Block, Warp, Lane, Serial, Unroll, Vector };
inline constexpr int kNumBinds = 8;
const char* bind_name(Bind b);
inline bool is_launch(Bind b) { return b <= Bind::Lane; }

enum class Memory : uint8_t { Global, Workspace, Shared, Register };
struct ProgramBuffer {
  std::string name;
  Memory memory = Memory::Global;
  Access access = Access::In;  // Global
  Type type = Type::F32;
  Expr extent = kZero;   // elements; a number for shared memory and registers
  int64_t align = 16;    // bytes that the address of element 0 is a multiple of
  uint32_t launch = 0;   // Shared, Register: which one it belongs to
  bool aliased = false;  // Global: it may lie where another buffer does
};

enum class BarrierScope : uint8_t { Warp, Block };
enum class Exchange : uint8_t { Xor, From };

enum class StatementKind : uint8_t { Inst, Shuffle, Barrier, Mma, MmaGroup, MmaWait, Copy, CopyEnd, CopyWait, Loop, If };
// Where an operand of a matrix instruction or of a copy begins.
struct Fragment {
  uint32_t buffer = kNone;
  Expr at = kZero;
};
inline constexpr int64_t kMmaElements[] = {4, 8, 4};            // of a lane: sums, left, right
inline constexpr int64_t kGroupThreads = 128, kGroupRows = 64;  // of a group of waves that multiply together
struct GroupShape {                                             // MmaGroup; of MmaWait the columns
  int64_t columns = 0, depth = 0;
  std::array<int64_t, 2> pitch{};  // of left and right, in elements
  std::array<bool, 2> turned{};
};
inline constexpr int64_t kGroupBlock = 64;  // elements side by side in an operand
// Where an element of an operand of `mma_group` lies, behind the operand's beginning.
constexpr int64_t group_place(int64_t line, int64_t d, int64_t pitch, bool turned) {
  const int64_t x = turned ? line : d, y = turned ? d : line;  // x lies side by side
  return pitch * (x / kGroupBlock) + kGroupBlock * y + 8 * ((x / 8 % 8) ^ (y % 8)) + x % 8;
}
struct Statement {
  StatementKind kind = StatementKind::Inst;
  // Inst: any instruction of the kernel IR but param, reduce and second; loads and stores name a ProgramBuffer. Shuffle: type,
  // args[0], origin. If, Copy: args[0] is the condition. Mma: the type of left and right.
  Inst inst;
  Exchange exchange = Exchange::Xor;         // Shuffle
  int64_t lane = 0, lanes = 0;               // Shuffle: Xor: the bits; From: the lane, and how many lanes a group has
  BarrierScope scope = BarrierScope::Block;  // Barrier
  Bind bind = Bind::Serial;                  // Loop
  uint32_t axis = kNone;                     // Loop
  std::array<Fragment, 3> fragments{};       // Mma, MmaGroup: sums, left, right; MmaWait: sums; Copy: to, from
  GroupShape group;
  int64_t count = 0;           // Copy: elements; CopyWait: how many of the last batches may go on
  std::vector<uint32_t> body;  // Loop, If
};

struct ProgramSymbol {
  std::string name;
  int64_t min = 0;
  int64_t multiple = 1;  // the launcher guarantees that the size is a multiple of this
};

struct Program {
  std::string name;
  int wave = 32;
  IndexPool pool;  // axes, symbols, and values: integers that statements of these numbers compute
  std::vector<ProgramSymbol> symbols;
  std::vector<ProgramBuffer> buffers;  // the launch's pointers in this order, workspaces last; then shared memory and registers
  std::vector<std::string> axis_names;
  std::vector<Statement> statements;  // a value is the number of its statement
  std::vector<std::vector<uint32_t>> launches;
  // What must hold for the program to be right, beside the symbols' ranges: each expression is at most the number. The launcher
  // checks it.
  struct Require {
    Expr size;
    int64_t most;
  };
  std::vector<Require> require;
  std::vector<std::string> origins;

  uint32_t add_axis(std::string axis_name, Expr extent) {
    axis_names.push_back(std::move(axis_name));
    return pool.add_axis(extent);
  }
  uint32_t add_symbol(std::string symbol_name, int64_t min, int64_t multiple) {
    symbols.push_back({std::move(symbol_name), min, multiple});
    return pool.add_symbol(min);
  }
  // Is `e` a multiple of `n` for certain?
  bool divisible(Expr e, int64_t n) const;
};

// How the device is asked to run one launch: sizes as expressions over the symbols.
struct LaunchShape {
  Expr blocks = kOne;
  int64_t threads = 1;  // of a block
  int64_t shared_bytes = 0;
};
LaunchShape launch_shape(Program& p, size_t launch);
// Where each shared buffer lies in the block's shared memory, by number of the buffer; others have -1.
std::vector<int64_t> shared_offsets(const Program& p, size_t launch);

// For devices whose lanes cannot read each other's registers: shuffles become stores to shared memory, barriers and loads, and
// barriers of a wave those of the block. Programs in which not all threads of a block come to a shuffle do not pass the
// verifier afterwards.
void without_shuffles(Program& p);

// The text form: parse(print(p)) prints the same again.
std::string print(const Program& p, bool origins = false);
// Throws sdk::Error TSR-K026, which names line and column. The result is not verified.
Program parse_program(std::string_view text);

}  // namespace tessera::kit
