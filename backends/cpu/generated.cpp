// SPDX-License-Identifier: Apache-2.0
#include "generated.hpp"

#include <algorithm>
#include <cctype>
#include <cstdio>

#include "saved.hpp"
#include "strided.hpp"
#include "tessera/caches.hpp"
#include "tessera/dtypes.hpp"
#include "tessera/kit/fit.hpp"
#include "tessera/kit/in_place.hpp"
#include "tessera/kit/schedule.hpp"

namespace cpu {

namespace sdk = tessera::sdk;
namespace kit = tessera::kit;

namespace {

constexpr size_t kMaxBuffers = 128, kMaxSymbols = 64;

std::string identifier(std::string_view text) {
  std::string out;
  for (const char c : text) out += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return out;
}

class GeneratedKernel final : public sdk::Kernel {
 public:
  GeneratedKernel(const sdk::Compile& c, WrittenKernel d, ModulePtr module, const kit::Device& device)
      : module_(std::move(module)),
        stream_from_(device.l3_bytes / 2),
        name_("cpu." + d.name.substr(2)),
        operand_of_(std::move(d.operand_of)) {
    find_functions();
    for (const tsr_dim s : d.lowered.symbol_dims) symbols_.push_back(sdk::launch_dim(c, s));
    if (d.in_place >= 0 && static_cast<size_t>(d.in_place) < operand_of_.size())
      in_place_ = static_cast<int>(operand_of_[static_cast<size_t>(d.in_place)]);
    pointwise_ = d.pointwise;
    if (operand_of_.size() + c.node().num_results() > kMaxBuffers || symbols_.size() > kMaxSymbols)
      throw sdk::Error(TSR_BUG, "TSR-B005", "cpu was given a region of more operands than it claims");
  }

  // Of what serialize() wrote: the object, what follows it, and the length of that.
  GeneratedKernel(std::string_view bytes, Compiler& compiler, const kit::Device& device) : stream_from_(device.l3_bytes / 2) {
    const kit::SavedParts parts = kit::split_saved(bytes);
    SavedReader in(parts.rest);
    Linked linked;
    linked.object = parts.object;
    linked.id = in.text();
    const auto symbols = in.number<uint64_t>();
    for (uint64_t i = 0; i < symbols; ++i) linked.symbols.emplace_back(in.text());
    const auto first = in.number<uint64_t>(), count = in.number<uint64_t>();
    name_ = in.text();
    operand_of_ = in.numbers<uint32_t>();
    symbols_ = in.numbers<sdk::LaunchDim>();
    in_place_ = in.number<int>();
    pointwise_ = in.number<int>() != 0;
    in.end();
    if (count < 2 || count > 3 || operand_of_.size() > kMaxBuffers || symbols_.size() > kMaxSymbols) SavedReader::fail();
    module_ = compiler.restore(std::move(linked), static_cast<size_t>(first), static_cast<size_t>(count));
    find_functions();
  }

  bool can_serialize() const override { return module_->linked() != nullptr; }
  std::string serialize() const override {
    const Linked& l = *module_->linked();
    SavedWriter w;
    w.text(l.id);
    w.number<uint64_t>(l.symbols.size());
    for (const std::string& s : l.symbols) w.text(s);
    w.number<uint64_t>(module_->first());
    w.number<uint64_t>(module_->count());
    w.text(name_);
    w.numbers(operand_of_);
    w.numbers(symbols_);
    w.number(in_place_);
    w.number<int>(pointwise_);
    return kit::join_saved(l.object, w.take());
  }

  std::string name() const override { return name_; }
  int in_place() const override { return in_place_; }
  uint32_t kernel_flags() const override { return pointwise_ ? TSR_KERNEL_POINTWISE : 0; }
  bool has_workspace() const override { return true; }
  int64_t workspace(const int64_t* dims) override { return own_workspace(dims); }
  // Generated code reads dense memory. Other operands, such as constants that it holds as numbers, are none of its business.
  uint64_t strided_inputs() const override {
    uint64_t others = ~uint64_t{0};
    for (const uint32_t operand : operand_of_)
      if (operand < 64) others &= ~(uint64_t{1} << operand);
    return others;
  }

  void launch(const tsr_launch& l) override {
    void* buffers[kMaxBuffers];
    int64_t symbols[kMaxSymbols];
    kit::KernelPlan plan;
    fill(l.dims, symbols);
    plan_(symbols, &plan);
    size_t n = 0;
    for (const uint32_t operand : operand_of_) buffers[n++] = l.inputs[operand].data;
    for (uint32_t i = 0; i < l.num_outputs; ++i) buffers[n++] = l.outputs[i].data;
    uint32_t faults = 0;
    kit::KernelArgs args{buffers, symbols, l.workspace, &faults, exceeds_cache(l) ? 1 : 0};
    run(body_, args, plan.units, plan.grain);
    if (plan.join_units > 0 && join_) run(join_, args, plan.join_units, plan.join_grain);
    if (faults) [[unlikely]]
      throw_faults(faults, name_);
  }

 private:
  using Range = void(const kit::KernelArgs*, int64_t, int64_t);
  void find_functions() {
    body_ = module_->function<Range>(0);
    plan_ = module_->function<void(const int64_t*, kit::KernelPlan*)>(1);
    if (module_->count() > 2) join_ = module_->function<Range>(2);
  }
  struct Call {
    Range* range;
    const kit::KernelArgs* args;
  };
  static void run(Range* range, const kit::KernelArgs& args, int64_t units, int64_t grain) {
    if (units <= 0) return;
    if (units <= grain) return range(&args, 0, units);
    Call call{range, &args};
    sdk::host().core->parallel(
        units, grain,
        [](void* p, int64_t begin, int64_t end) { static_cast<Call*>(p)->range(static_cast<Call*>(p)->args, begin, end); },
        &call);
  }

  // Outputs of which nothing would be left in the last-level cache when somebody reads them.
  bool exceeds_cache(const tsr_launch& l) const {
    int64_t bytes = 0;
    for (uint32_t i = 0; i < l.num_outputs; ++i) {
      int64_t n = tessera::dtype_bits(l.outputs[i].dtype) / 8;
      for (uint32_t d = 0; d < l.outputs[i].rank; ++d) n *= l.outputs[i].sizes[d];
      bytes += n;
    }
    return bytes > stream_from_;
  }

  void fill(const int64_t* dims, int64_t* symbols) const {
    for (size_t i = 0; i < symbols_.size(); ++i) symbols[i] = symbols_[i].get(dims);
  }
  int64_t own_workspace(const int64_t* dims) const {
    int64_t symbols[kMaxSymbols];
    kit::KernelPlan plan;
    fill(dims, symbols);
    plan_(symbols, &plan);
    return (plan.workspace + 63) / 64 * 64;
  }

  ModulePtr module_;
  int64_t stream_from_;
  std::string name_;
  std::vector<uint32_t> operand_of_;
  std::vector<sdk::LaunchDim> symbols_;
  Range *body_ = nullptr, *join_ = nullptr;
  void (*plan_)(const int64_t*, kit::KernelPlan*) = nullptr;
  int in_place_ = -1;
  bool pointwise_ = false;
};

}  // namespace

// Every `from` that is a whole identifier, or the beginning of one that goes on with "_plan" or "_join".
static std::string renamed(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) text.replace(at, from.size(), to);
  return text;
}

kit::Device describe_device(const Isa& isa) {
  kit::Device d;
  d.cores = std::max(1, sdk::host().core->num_threads());
  d.vector_bytes = isa.vector_bits / 8;
  d.tables = isa.vector_bits == 512;
  d.l1_bytes = tessera::cache_bytes(1, d.l1_bytes);
  d.l2_bytes = tessera::cache_bytes(2, d.l2_bytes);
  d.l3_bytes = tessera::cache_bytes(3, d.l3_bytes);
  return d;
}

std::string kernel_name(const sdk::Graph& g, const sdk::Node& n) {
  // Prefixed: a kernel called "exp" would be what its own call of exp finds.
  if (n.regions().size() != 1) return "k_" + identifier(n.op());
  std::string out = "k_fused";
  for (const sdk::Node& x : g.nodes(n.regions()[0]))
    if (!x.is("constant") && out.size() < 80) out += "_" + identifier(x.op());
  return out;
}

std::string without_comments(const std::string& text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    size_t end = text.find('\n', at);
    if (end == std::string::npos) end = text.size();
    const std::string_view line(text.data() + at, end - at);
    const size_t comment = line.find("//"), first = line.find_first_not_of(' ');
    if (comment == std::string_view::npos)
      out.append(line).push_back('\n');
    else if (comment != first)
      out.append(line.substr(0, line.find_last_not_of(' ', comment - 1) + 1)).push_back('\n');
    at = end + 1;
  }
  return out;
}

namespace {

kit::NodePiece checked_piece(const sdk::Graph& g, const sdk::Node& n) {
  kit::NodePiece out = kit::piece_of(g, n);
  const kit::Piece& p = out.piece;
  for (const auto* values : {&p.inputs, &p.outputs})
    for (const sdk::Value& v : *values)
      if (v.type().elements() == 0) throw kit::Unfit{"empty tensors are left to others"};
  if (p.inputs.size() + p.outputs.size() > kMaxBuffers) throw kit::Unfit{"more operands than a kernel takes"};
  return out;
}
void check_symbols(size_t symbols) {
  if (symbols > kMaxSymbols) throw kit::Unfit{"more symbolic sizes than a kernel takes"};
}

struct Lowering {
  kit::NodePiece piece;
  kit::Lowered lowered;
};
Lowering lower_node(const sdk::Graph& g, const sdk::Node& n, const std::string& name) {
  Lowering l{checked_piece(g, n), {}};
  l.lowered = kit::lower(l.piece.piece, name);
  check_symbols(l.lowered.symbol_dims.size());
  return l;
}

uint64_t fnv(std::string_view text) {  // FNV-1a, 64 bits
  uint64_t h = 0xcbf29ce484222325u;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return h;
}

}  // namespace

void throw_faults(uint32_t faults, const std::string& name) {
  if (faults & kit::kFaultDivision)
    throw sdk::Error(TSR_USER, "TSR-R010", "integer division by zero in '" + name + "'", "check the divisor");
  throw sdk::Error(TSR_USER, "TSR-R011", "an index is out of range in '" + name + "'", "check the indices");
}

void check_node(const sdk::Graph& g, const sdk::Node& n) {
  const kit::Fit fit = kit::FitCache().of(checked_piece(g, n).piece);
  if (!fit.why.empty()) throw kit::Unfit{fit.why};
  check_symbols(fit.symbols);
}

Source write_source(kit::Kernel& kernel, const kit::Schedule& schedule, const std::string& name, bool log) {
  // Names of the graph's values and sizes do not matter to the code, and need not be identifiers.
  for (size_t i = 0; i < kernel.buffers.size(); ++i) kernel.buffers[i].name = "b" + std::to_string(i);
  for (size_t i = 0; i < kernel.symbols.size(); ++i) kernel.symbols[i].name = "n" + std::to_string(i);
  kit::ModuleText module(kit::cpu_dialect());
  module.add(kernel, schedule);
  const std::string text = module.text(), bare = without_comments(text);
  char hash[20];
  std::snprintf(hash, sizeof hash, "_%012llx", static_cast<unsigned long long>(fnv(bare) >> 16));
  Source out;
  out.name = name + hash;
  out.text = renamed(bare, kPlaceholderName, out.name);
  out.symbols = {out.name, out.name + "_plan"};
  if (schedule.split) out.symbols.push_back(out.name + "_join");
  if (log && sdk::log_enabled("kernel_code")) {
    std::string origins;
    for (const std::string& o : kernel.origins) origins += "// " + o + "\n";
    sdk::log("kernel_code", "// cpu." + out.name + " computes\n" + origins + renamed(text, kPlaceholderName, out.name));
  }
  return out;
}

WrittenKernel write_kernel(const sdk::Graph& g, const sdk::Node& n, const kit::Device& device, bool relaxed, bool log,
                           const kit::Choice* choice) {
  Lowering l = lower_node(g, n, kPlaceholderName);
  WrittenKernel d;
  d.lowered = std::move(l.lowered);
  if (device.tables) kit::use_tables(d.lowered.kernel);
  d.schedule = kit::choose_schedule(d.lowered.kernel, device);
  if (choice) d.schedule = kit::with_choice(d.schedule, *choice);
  d.schedule.relaxed = relaxed;
  d.operand_of = std::move(l.piece.operand_of);
  d.name = kernel_name(g, n);
  d.source = write_source(d.lowered.kernel, d.schedule, d.name, log);
  d.in_place = kit::in_place_input(d.lowered.kernel);
  d.pointwise = kit::reads_before_writing(d.lowered.kernel);
  return d;
}

WrittenKernel WrittenStructures::write(const sdk::Graph& g, const sdk::Node& n, const kit::Device& device, bool relaxed,
                                       bool log) {
  kit::NodePiece piece = checked_piece(g, n);
  std::string key = kit::structure_key(piece.piece);
  if (key.empty() || (log && sdk::log_enabled("kernel_code"))) return write_kernel(g, n, device, relaxed, log);
  key += kernel_name(g, n) + (relaxed ? '1' : '0');
  {
    std::lock_guard lock(mutex_);
    if (const auto at = kernels_.find(key); at != kernels_.end()) {
      WrittenKernel d = at->second;
      d.operand_of = std::move(piece.operand_of);
      return d;
    }
  }
  WrittenKernel d = write_kernel(g, n, device, relaxed, log);
  WrittenKernel kept;
  kept.schedule = d.schedule, kept.name = d.name, kept.source = d.source;
  kept.in_place = d.in_place, kept.pointwise = d.pointwise;
  std::lock_guard lock(mutex_);
  if (kernels_.size() == kMost) kernels_.clear();
  kernels_.emplace(std::move(key), std::move(kept));
  return d;
}

std::unique_ptr<sdk::Kernel> make_generated(const sdk::Compile& c, WrittenKernel d, ModulePtr module,
                                            const kit::Device& device) {
  return std::make_unique<GeneratedKernel>(c, std::move(d), std::move(module), device);
}

std::unique_ptr<sdk::Kernel> restore_generated(std::string_view bytes, Compiler& compiler, const kit::Device& device) {
  return std::make_unique<GeneratedKernel>(bytes, compiler, device);
}

}  // namespace cpu
