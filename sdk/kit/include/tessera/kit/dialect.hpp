// SPDX-License-Identifier: Apache-2.0
// How C-like text of a device looks, instruction by instruction: the small interface that separates kernels from languages.
// Loops, launch signatures and reductions across lanes belong to the emitter of a family of devices (emit.hpp: CPU);
// instructions, types, constants, functions and memory accesses are here and are shared.
//
// A value of `lanes` lanes is a vector; 1 is a scalar. What a piece of text needs to be declared (types, helpers) is noted in
// Needs, and comes out of prelude().
#pragma once

#include <set>
#include <span>
#include <string>
#include <utility>

#include "tessera/kit/ir.hpp"

namespace tessera::kit {

struct Needs {
  std::set<std::pair<Type, int>> types;           // vector types; Bool: the mask type
  std::set<std::pair<std::string, int>> helpers;  // by the dialect's own names, with lanes
  std::set<uint32_t> tables;                      // of the library
};

class Dialect {
 public:
  virtual ~Dialect() = default;
  virtual std::string type(Type t, int lanes, Needs& needs) const = 0;  // of a value
  virtual std::string memory_type(Type t) const = 0;                    // of an element in memory
  virtual std::string constant(Type t, uint64_t bits) const = 0;        // a scalar
  virtual std::string splat(Type t, int lanes, const std::string& scalar, Needs& needs) const = 0;
  // An instruction without memory access: Neg .. Select, Call aside. `args` are texts of operands, all of `lanes` lanes;
  // `shift` is the number by which a Shl or Shr shifts when that is constant and below the width, else -1.
  virtual std::string instruction(const Inst& x, Type operand, int lanes, std::span<const std::string> args, int shift,
                                  Needs& needs) const = 0;
  // An f32 value rounded to the 16-bit float `t` and widened again. `short_nan`: where it is NaN, the bits that are cut are
  // zeros. Nothing: two conversions.
  virtual std::string rounded(Type /*t*/, int /*lanes*/, const std::string& /*value*/, bool /*short_nan*/, Needs&) const {
    return {};
  }
  // An f32 value rounded to the 16-bit float `t`, where subnormal numbers may become zeros and a NaN may stay any NaN. Nothing:
  // as exactly as always.
  virtual std::string narrowed(Type /*t*/, int /*lanes*/, const std::string& /*value*/, Needs&) const { return {}; }
  // A scalar routine of the C library on every lane (`where`: only lanes for which it holds, the others keep the operand).
  virtual std::string external(const Function& f, int lanes, std::span<const std::string> args, Needs& needs) const = 0;
  // Contiguous elements; `count` is the text of how many lanes are alive, empty: all. A load gives 0 in the others.
  virtual std::string load(Type t, int lanes, const std::string& pointer, const std::string& count, Needs& needs) const = 0;
  virtual std::string store(Type t, int lanes, const std::string& pointer, const std::string& value, const std::string& count,
                            Needs& needs) const = 0;
  // An element of a byte each, from the table of 256 at `table`; `index` is an i64 from 0 to 255. Nothing: a load for each
  // lane.
  virtual std::string of_byte_table(Type /*t*/, int /*lanes*/, const std::string& /*table*/, const std::string& /*index*/,
                                    Needs&) const {
    return {};
  }
  // A statement that copies `lanes` columns of as many rows from memory, transposed: element (j, t), at pointer + j * step + t,
  // goes to tile[t * lanes + j].
  virtual std::string transpose(Type t, int lanes, const std::string& pointer, const std::string& step, const std::string& tile,
                                Needs& needs) const = 0;
  // The same in two halves. A statement that takes four rows of `lanes` elements of 2 or 4 bytes apart: the four elements t go
  // to `to` and as many behind it as four_at says, in the order of their rows; and a vector of a row of the transposed tile,
  // whose fours lie 4 * lanes apart.
  virtual std::string four_rows(Type t, int lanes, const std::string& pointer, const std::string& step, const std::string& to,
                                Needs& needs) const = 0;
  virtual std::string four_at(Type t, int lanes, const std::string& element) const = 0;
  virtual std::string joined_fours(Type t, int lanes, const std::string& pointer, Needs& needs) const = 0;
  // A store of all lanes that goes past the caches where the expression `flag` is not 0 and the address allows it; what follows
  // such stores, once and before anybody else reads what they wrote.
  virtual std::string stream(Type t, int lanes, const std::string& pointer, const std::string& value, const std::string& flag,
                             Needs& needs) const = 0;
  virtual std::string stream_fence(const std::string& flag, Needs& needs) const = 0;
  virtual std::string function_head(const Function& f, int lanes, Needs& needs) const = 0;  // up to and including "{"
  virtual std::string function_name(const Function& f, int lanes) const = 0;
  // A statement that asks for the line of memory at `pointer` to come near, not nearest: lines a power of two apart drive each
  // other out of the nearest cache. The address may lie outside of the buffer. Nothing: the device has no such thing.
  virtual std::string prefetch(const std::string& /*pointer*/) const { return {}; }
  // A statement that moves a pointer on by `step` elements at this place of the text, and not as one of many offsets from where
  // it began.
  virtual std::string advance(const std::string& pointer, const std::string& step) const {
    return pointer + " += " + step + ";";
  }
  // The same value, of whose origin the device's compiler knows nothing.
  virtual std::string hide(Type, int /*lanes*/, const std::string& value, Needs&) const { return value; }
  // Text at the beginning of a function's body that returns the same bits another way, where the device has one; else nothing.
  virtual std::string instead(const Function& /*f*/, int /*lanes*/) const { return {}; }
  virtual std::string prelude(const Needs& needs) const = 0;
};

// C++ with GCC's vector extension, for g++ and clang alike.
const Dialect& cpu_dialect();

}  // namespace tessera::kit
