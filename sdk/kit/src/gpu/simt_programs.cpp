// SPDX-License-Identifier: Apache-2.0
#include "tessera/kit/gpu/simt_programs.hpp"

#include <algorithm>
#include <numeric>
#include <optional>

#include "build.hpp"
#include "node_program.hpp"
#include "simt_kernel.hpp"
#include "tessera/kit/gpu/parts.hpp"

namespace tessera::kit {
namespace {

// Names of the graph's values and sizes do not matter to the code, and need not be identifiers.
void rename(Kernel& k, const char* prefix) {
  for (size_t i = 0; i < k.buffers.size(); ++i) k.buffers[i].name = prefix + std::to_string(i);
  for (size_t i = 0; i < k.symbols.size(); ++i) k.symbols[i].name = "n" + std::to_string(i);
}

uint32_t place_in(const std::vector<sdk::Value>& list, sdk::Value v) {
  return static_cast<uint32_t>(std::find(list.begin(), list.end(), v) - list.begin());
}

// Takes the schedule that a search wants in the place of the model's, where a program can be made of it.
template <class Make>
void searched(SimtSchedule& s, Program& p, const SimtSchedule& wanted, Make make) {
  if (wanted == s) return;
  try {
    p = make(wanted);
    s = wanted;
  } catch (const sdk::Error& e) {
    if (e.code != "TSR-K041") throw;
  }
}

// ---- several kernels in one program

struct Sweep {
  SweepPieces pieces;
  Lowered rows, columns;
  std::vector<uint32_t> shared, links;  // see make_norm_backward

  Sweep(SweepPieces p, const std::string& name, const LowerOptions& options)
      : pieces(std::move(p)), rows(lower(pieces.rows, name, options)), columns(lower(pieces.columns, name, options)) {
    if (rows.symbol_dims != columns.symbol_dims) throw Unfit{"rows and what is summed across them have other sizes"};
    if (rows.kernel.loops.empty() || columns.kernel.loops.size() != 1 || !columns.kernel.loops[0].across)
      throw Unfit{"it is no sweep over rows that are summed across"};
    const Piece& r = pieces.rows;
    for (const sdk::Value& v : pieces.columns.inputs) {
      const uint32_t input = place_in(r.inputs, v), output = place_in(r.outputs, v);
      shared.push_back(input < r.inputs.size()     ? input
                       : output < r.outputs.size() ? static_cast<uint32_t>(r.inputs.size()) + output
                                                   : kNone);
    }
    shared.resize(shared.size() + pieces.columns.outputs.size(), kNone);
    rename(rows.kernel, "b");
    rename(columns.kernel, "c");
  }

  // Outputs of the rows that the piece does not have.
  void leave_out_links(const Piece& whole) {
    const Piece& r = pieces.rows;
    for (uint32_t i = 0; i < r.outputs.size(); ++i)
      if (place_in(whole.outputs, r.outputs[i]) == whole.outputs.size())
        links.push_back(static_cast<uint32_t>(r.inputs.size()) + i);
  }

  Program program(const GpuDescription& device, SimtPrograms& out, const SimtOptions& options) {
    SimtSchedule s = choose_norm_backward(rows.kernel, columns.kernel, device);
    const auto made = [&](const SimtSchedule& of) {
      return make_norm_backward(rows.kernel, columns.kernel, shared, of, device, {}, links);
    };
    std::optional<Program> p;
    while (!p) {  // more threads have fewer registers each
      try {
        p = made(s);
      } catch (const sdk::Error& e) {
        if (e.code != "TSR-K041") throw;
        if (s.unroll > 1) {  // less of the next row, or nothing
          s.unroll /= 2;
          continue;
        }
        if (s.threads * 2 > device.max_threads) throw;
        s.threads *= 2;
        s.unroll = 1;
      }
    }
    const auto neighbours = [&](const SimtSchedule& of) {
      return norm_backward_neighbours(rows.kernel, columns.kernel, shared, of, device, {}, links);
    };
    if (options.search) searched(s, *p, options.search({s, neighbours}), made);
    out.used = s;
    out.schedule = to_text(s);
    return std::move(*p);
  }
};

struct Found {
  SimtPrograms programs;
  std::string why;  // not empty: there are none
};

// A sweep needs registers for whole rows: only the program that is made says whether they are enough.
Found sweep_programs(const Piece& whole, const NodePiece& node, const std::string& name, const GpuDescription& device,
                     const SimtOptions& options) {
  Found out;
  try {
    const auto pieces = sweep_of(whole);
    if (!pieces) return {{}, "it is no sweep"};
    Sweep sweep(*pieces, name, options.lower);
    if (sweep.rows.symbol_dims.size() > SimtKernel::kMaxSizes) return {{}, "more symbolic sizes than a kernel takes"};
    sweep.leave_out_links(whole);
    out.programs.programs.push_back(sweep.program(device, out.programs, options));
    out.programs.symbol_dims = sweep.rows.symbol_dims;
    const auto inputs = [&](const Piece& p, const auto& skip) {
      for (uint32_t i = 0; i < p.inputs.size(); ++i)
        if (!skip(i)) out.programs.operand_of.push_back(node.operand_of[place_in(whole.inputs, p.inputs[i])]);
    };
    inputs(sweep.pieces.rows, [](uint32_t) { return false; });
    inputs(sweep.pieces.columns, [&](uint32_t i) { return sweep.shared[i] != kNone; });
    for (const Piece* p : {&sweep.pieces.rows, &sweep.pieces.columns})
      for (const sdk::Value& v : p->outputs)
        if (const uint32_t at = place_in(whole.outputs, v); at < whole.outputs.size()) out.programs.result_of.push_back(at);
  } catch (const Unfit& u) {
    out.why = u.why;
  } catch (const sdk::Error& e) {
    if (e.code != "TSR-K041") throw;
    out.why = e.what();
  }
  return out;
}

// Elementwise parts that share nothing but inputs, in one launch.
Found part_programs(const Piece& whole, const NodePiece& node, const std::string& name, const GpuDescription& device,
                    const SimtOptions& options) {
  constexpr int kThreads = 256;
  Found out;
  try {
    if (whole.inputs.size() + whole.outputs.size() > SimtKernel::kMaxPointers / 2)
      return {{}, "more operands than a kernel takes"};
    const std::vector<Piece> pieces = parts_of(whole);
    if (pieces.size() < 2) return {{}, "it has no independent parts"};
    std::vector<ProgramPart> parts;
    std::vector<ProgramSymbol> symbols;
    SimtPrograms& made = out.programs;
    for (const Piece& piece : pieces) {
      Lowered l = lower(piece, name, options.lower);
      if (!l.kernel.loops.empty()) return {{}, "a part that reduces"};
      rename(l.kernel, "b");
      SimtSchedule s = choose_simt(l.kernel, device);
      if (s.form != SimtForm::Pointwise) s = generic_schedule(device);
      s.threads = kThreads;
      ProgramPart part{make_program(l.kernel, s, device), {}};
      for (size_t i = 0; i < l.symbol_dims.size(); ++i) {
        const auto at = std::find(made.symbol_dims.begin(), made.symbol_dims.end(), l.symbol_dims[i]);
        part.symbols.push_back(static_cast<uint32_t>(at - made.symbol_dims.begin()));
        if (at != made.symbol_dims.end()) continue;
        made.symbol_dims.push_back(l.symbol_dims[i]);
        symbols.push_back({"n" + std::to_string(symbols.size()), l.kernel.symbols[i].min, 1});
      }
      if (symbols.size() > SimtKernel::kMaxSizes) return {{}, "more symbolic sizes than a kernel takes"};
      for (const sdk::Value& v : piece.inputs) made.operand_of.push_back(node.operand_of[place_in(whole.inputs, v)]);
      for (const sdk::Value& v : piece.outputs) made.result_of.push_back(place_in(whole.outputs, v));
      parts.push_back(std::move(part));
    }
    made.schedule = std::to_string(parts.size()) + " parts side by side";
    made.programs.push_back(side_by_side(std::move(parts), name, symbols, device));
  } catch (const Unfit& u) {
    out.why = u.why;
  } catch (const sdk::Error& e) {
    if (e.code != "TSR-K041") throw;
    out.why = e.what();
  }
  return out;
}

// A group that is no single kernel.
Found group_programs(const NodePiece& node, const std::string& name, const GpuDescription& device, const SimtOptions& options) {
  Found found = sweep_programs(node.piece, node, name, device, options);
  return found.why.empty() ? found : part_programs(node.piece, node, name, device, options);
}

bool has_node_program(sdk::Graph g, sdk::Node n, const GpuDescription& device, const SimtOptions& options) {
  return options.lower.everything && (n.regions().empty() || n.is("fused")) && why_no_node_program(g, n, device).empty();
}

// The operand that the first result may overwrite: a thread loads all that it reads before it stores anything. One that another
// node computes for this one alone, where there is a choice: memory of others is seldom free.
int overwritten(Kernel& k, sdk::Node n, const std::vector<uint32_t>& operand_of, Program& p) {
  std::vector<uint32_t> inputs = in_place_inputs(k);
  std::erase_if(inputs, [&](uint32_t b) { return b >= operand_of.size(); });
  if (inputs.empty()) return -1;
  const auto free = std::find_if(inputs.begin(), inputs.end(), [&](uint32_t b) {
    const sdk::Value v = n.operand(operand_of[b]);
    return v.def() && v.uses().size() == 1;
  });
  const uint32_t input = free == inputs.end() ? inputs[0] : *free;
  const auto output = std::find_if(k.buffers.begin(), k.buffers.end(), [](const Buffer& b) { return b.access == Access::Out; });
  std::vector<ProgramBuffer*> both;
  for (ProgramBuffer& b : p.buffers)
    if (b.name == k.buffers[input].name || b.name == output->name) both.push_back(&b);
  if (both.size() != 2 || !is_large(p.pool, *both[0])) return -1;
  both[0]->aliased = both[1]->aliased = true;
  return static_cast<int>(operand_of[input]);
}

Lowered lower_piece(const Piece& p, const std::string& name, const SimtOptions& options) {
  if (p.inputs.size() + p.outputs.size() > SimtKernel::kMaxPointers / 2) throw Unfit{"more operands than a kernel takes"};
  Lowered l = lower(p, name, options.lower);
  if (l.symbol_dims.size() > SimtKernel::kMaxSizes) throw Unfit{"more symbolic sizes than a kernel takes"};
  return l;
}

}  // namespace

std::string why_no_simt_programs(sdk::Graph g, sdk::Node n, const GpuDescription& device, const SimtOptions& options) {
  if (!n.regions().empty() && !n.is("fused")) return "there is no kernel for an op with regions";
  try {
    const NodePiece node = piece_of(g, n);
    try {
      (void)lower_piece(node.piece, "k", options);
      return {};
    } catch (const Unfit& u) {
      if (has_node_program(g, n, device, options)) return {};
      if (n.is("fused") && group_programs(node, "k", device, options).why.empty()) return {};
      return u.why;
    }
  } catch (const Unfit& u) {
    return u.why;
  }
}

SimtPrograms simt_programs(sdk::Graph g, sdk::Node n, const std::string& name, const GpuDescription& device,
                           const SimtOptions& options) {
  SimtPrograms out;
  const auto results = [&] {
    out.result_of.resize(n.num_results());
    std::iota(out.result_of.begin(), out.result_of.end(), 0u);
  };
  if (has_node_program(g, n, device, options)) {
    NodeProgram p = node_program(g, n, name, device);
    out.operand_of = std::move(p.operand_of);
    out.symbol_dims = std::move(p.symbol_dims);
    out.programs.push_back(std::move(p.program));
    if (p.any_strides) {
      out.programs.push_back(std::move(*p.any_strides));
      out.programs[1].name += "_any";
    }
    out.strides = std::move(p.strides);
    out.in_place = p.in_place;
    out.schedule = "a program of its own";
    results();
    return out;
  }
  NodePiece node = piece_of(g, n);
  Lowered l;
  try {
    l = lower_piece(node.piece, name, options);
  } catch (const Unfit&) {
    if (!n.is("fused")) throw;
    Found found = group_programs(node, name, device, options);
    if (!found.why.empty()) throw;
    return std::move(found.programs);
  }
  out.operand_of = std::move(node.operand_of);
  out.symbol_dims = std::move(l.symbol_dims);
  results();
  Kernel& k = l.kernel;
  rename(k, "b");
  SimtSchedule s = choose_simt(k, device);
  if (options.vary) s = options.vary(k, s, device);
  out.programs.push_back(make_program(k, s, device));
  if (options.search)
    searched(s, out.programs[0], options.search({s, [&](const SimtSchedule& of) { return simt_neighbours(k, of, device); }}),
             [&](const SimtSchedule& of) { return make_program(k, of, device); });
  if (s.form == SimtForm::Pointwise) out.in_place = overwritten(k, n, out.operand_of, out.programs[0]);
  if (!out.programs[0].require.empty() && s.form != SimtForm::Generic) {
    out.programs.push_back(make_program(k, generic_schedule(device), device));
    out.programs[1].name += "_any";
  }
  out.used = s;
  out.schedule = to_text(s);
  return out;
}

}  // namespace tessera::kit
