// SPDX-License-Identifier: Apache-2.0
#include "attention/score_mod.hpp"

#include <algorithm>

#include "tessera/kit/schedule.hpp"

namespace cpu {

namespace sdk = tessera::sdk;
namespace kit = tessera::kit;

namespace {

using Symbol = kit::LoweredWindow::Symbol;

kit::LoweredWindow lower_score_mod(const AttentionForm& form, const std::string& name) {
  const std::vector<sdk::Value> none;
  for (const sdk::Value& v : form.piece.inputs)
    if (v.type().elements() == 0) throw kit::Unfit{"empty tensors are left to others"};
  kit::LoweredWindow l = kit::lower_window(form.piece, name, form.shape,
                                           form.has_scores() ? std::span(form.piece.inputs.data(), 1) : std::span(none));
  if (l.kernel.buffers.size() > ScoreMod::kMostBuffers || l.kernel.symbols.size() > ScoreMod::kMostSymbols)
    throw kit::Unfit{"more operands than the code of a window takes"};
  return l;
}

}  // namespace

void check_score_mod(const AttentionForm& form) { lower_score_mod(form, "k"); }

WrittenScoreMod write_score_mod(const AttentionForm& form, const kit::Device& device, bool relaxed, bool log) {
  WrittenScoreMod d;
  d.lowered = lower_score_mod(form, kPlaceholderName);
  if (device.tables) kit::use_tables(d.lowered.kernel);
  d.name = "attention";
  for (const sdk::Node& n : form.piece.nodes)
    if (d.name.size() < 80) d.name += "_" + std::string(n.op());
  kit::Schedule schedule = kit::window_schedule(d.lowered.kernel, device);
  schedule.relaxed = relaxed;
  d.source = write_source(d.lowered.kernel, schedule, "k_" + d.name, log);
  return d;
}

ScoreMod::ScoreMod(const sdk::Compile& c, const AttentionForm& form, WrittenScoreMod d, ModulePtr module)
    : module_(std::move(module)),
      name_(std::move(d.name)),
      has_scores_(form.has_scores()),
      rank_(d.lowered.rank),
      operand_of_(form.operand_of) {
  body_ = module_->function<void(const kit::KernelArgs*, int64_t, int64_t)>(0);
  plan_ = module_->function<void(const int64_t*, kit::KernelPlan*)>(1);
  for (const tsr_dim s : d.lowered.symbol_dims) symbols_.push_back(sdk::launch_dim(c, s));
  const kit::Kernel& kernel = d.lowered.kernel;
  for (uint32_t i = 0; i + 2 < rank_; ++i) {
    const auto place = static_cast<uint32_t>(d.lowered.place_at()) + i;
    matters_.push_back(std::any_of(kernel.insts.begin(), kernel.insts.end(), [&](const kit::Inst& inst) {
      return kernel.pool.uses(inst.index, kit::AtomKind::Symbol, place);
    }));
  }
  for (size_t i = 0; i + 2 < form.shape.size(); ++i) batch_.push_back(sdk::launch_dim(c, form.shape[i]));
  for (const uint32_t operand : operand_of_) {
    const sdk::Value v = c.node().operand(operand);
    strided_.push_back(may_be_strided(c.graph(), v));
    sizes_.emplace_back(c, v.type());
  }
}

int64_t ScoreMod::workspace_of(const int64_t* dims, uint64_t strided) const {
  int64_t bytes = 0;
  for (size_t i = 0; i < sizes_.size(); ++i)
    if (strided_[i] && is_strided(strided, operand_of_[i])) bytes += sizes_[i].bytes(dims);
  return bytes;
}

void ScoreMod::begin(const tsr_launch& l, char* space, Launch* out) const {
  for (size_t i = 0; i < symbols_.size(); ++i) out->symbols[i] = symbols_[i].get(l.dims);
  for (size_t i = 0; i < batch_.size(); ++i) out->batch[i] = batch_[i].get(l.dims);
  void** buffer = out->buffers;
  if (has_scores_) *buffer++ = nullptr;  // of each window
  for (size_t i = 0; i < operand_of_.size(); ++i) {
    const tsr_tensor& t = l.inputs[operand_of_[i]];
    *buffer = t.data;
    if (strided_[i] && !(t.flags & TSR_TENSOR_CONTIGUOUS)) {
      copy_dense(t, space);
      *buffer = space;
      space += sizes_[i].bytes(l.dims);
    }
    ++buffer;
  }
}

int64_t ScoreMod::place(const Launch& l, int64_t head) const {
  int64_t place = 0, step = 1;
  for (size_t d = matters_.size(); d-- > 0;) {
    if (matters_[d]) place += head % l.batch[d] * step, step *= l.batch[d];
    head /= l.batch[d];
  }
  return place;
}

void ScoreMod::apply(Launch& l, const Window& w, void* to) const {
  void* buffers[kMostBuffers];
  int64_t symbols[kMostSymbols];
  const size_t inputs = operand_of_.size() + (has_scores_ ? 1 : 0), first = symbols_.size(), places = rank_ - 2;
  std::copy_n(l.buffers, inputs, buffers);
  if (has_scores_) buffers[0] = to;
  buffers[inputs] = to;
  std::copy_n(l.symbols, first, symbols);
  int64_t head = w.head;
  for (size_t d = places; d-- > 0;) {
    symbols[first + d] = head % l.batch[d];
    head /= l.batch[d];
  }
  int64_t* own = symbols + first + places;
  own[Symbol::kRow] = w.query, own[Symbol::kRows] = w.queries;
  own[Symbol::kColumn] = w.key, own[Symbol::kColumns] = w.keys;
  own[Symbol::kStep] = w.step;
  kit::KernelPlan plan;
  plan_(symbols, &plan);
  const kit::KernelArgs args{buffers, symbols, nullptr, &l.faults, 0};
  body_(&args, 0, plan.units);
}

void ScoreMod::end(const Launch& l) const {
  if (l.faults) throw_faults(l.faults, "cpu." + name_);
}

}  // namespace cpu
