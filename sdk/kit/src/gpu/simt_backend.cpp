// SPDX-License-Identifier: Apache-2.0
#include "tessera/kit/gpu/simt_backend.hpp"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "simt_kernel.hpp"
#include "tessera/kit/choices.hpp"
#include "tessera/kit/fit.hpp"
#include "tessera/kit/measuring.hpp"
#include "written_kernel.hpp"

namespace tessera::kit {
namespace {

constexpr size_t kMostAnswers = 16384;
constexpr const char* kNameless = "k_this_kernel";  // stands for the name, which has a hash of the text

std::string identifier(std::string_view text) {
  std::string out;
  for (const char c : text) out += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return out;
}
std::string name_of(const sdk::Graph& g, const sdk::Node& n) {
  if (n.regions().size() != 1) return identifier(n.op());
  std::string out = "fused";
  for (const sdk::Node& x : g.nodes(n.regions()[0]))
    if (!x.is("constant") && out.size() < 80) out += "_" + identifier(x.op());
  return out;
}

uint64_t fnv(std::string_view text) {  // FNV-1a, 64 bits
  uint64_t h = 0xcbf29ce484222325u;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return h;
}

// A program without what says where it came from: texts of one structure are then equal.
Program anonymous(Program p) {
  p.origins.clear();
  for (Statement& s : p.statements) s.inst.origin = kNone;
  return p;
}

}  // namespace

SimtBackend::SimtBackend(std::shared_ptr<SimtTarget> target, SimtOptions options, std::string cache_directory)
    : target_(std::move(target)),
      options_(std::move(options)),
      choices_(std::make_unique<Choices>(std::move(cache_directory), target_->device())) {}
SimtBackend::~SimtBackend() = default;

uint32_t SimtBackend::index_of(tsr_device d) {
  const std::string_view name = sdk::host().core->device_name(d);
  const size_t colon = name.rfind(':');
  return colon == name.npos ? 0 : static_cast<uint32_t>(std::strtoul(std::string(name.substr(colon + 1)).c_str(), nullptr, 10));
}

std::string SimtBackend::why_not(sdk::Graph g, sdk::Node n) {
  if (const std::string why = target_->why_unavailable(); !why.empty()) return why;
  const bool is_group = n.is("fused");
  std::string key = is_group || n.regions().empty() ? structure_key(piece_of(g, n).piece) : std::string();
  if (!key.empty()) key += is_group ? 'g' : 'n';
  if (!key.empty()) {
    const std::lock_guard lock(mutex_);
    if (const auto at = answers_.find(key); at != answers_.end()) return at->second;
  }
  std::string why = why_no_simt_programs(g, n, target_->description(0), options_);
  if (key.empty()) return why;
  const std::lock_guard lock(mutex_);
  if (answers_.size() >= kMostAnswers) answers_.clear();
  answers_.emplace(key, why);
  return why;
}

sdk::Claim SimtBackend::claim(sdk::Graph g, sdk::Node n) {
  const std::string why = why_not(g, n);
  if (why.empty()) return sdk::yes();
  // The parts of a group are claimed again by themselves.
  return n.is("fused") ? sdk::no(g.scratch_string(why)) : sdk::decompose(g.scratch_string(why));
}

SimtBackend::WrittenKernel SimtBackend::write(const sdk::Compile& c, const Search& search, bool log) {
  WrittenKernel d;
  const GpuDescription& gpu = target_->description(index_of(c.p->device));
  std::string schedule;
  SimtOptions options = options_;
  options.search = search;
  try {
    SimtPrograms made = simt_programs(c.graph(), c.node(), kNameless, gpu, options);
    d.operand_of = std::move(made.operand_of);
    d.result_of = std::move(made.result_of);
    d.symbol_dims = std::move(made.symbol_dims);
    d.strides = std::move(made.strides);
    d.in_place = made.in_place;
    d.programs = std::move(made.programs);
    schedule = std::move(made.schedule);
    d.schedule = made.used;
  } catch (const Unfit& u) {
    throw sdk::Error(
        TSR_BUG, "TSR-B005",
        std::string(device()) + " was asked to compile '" + std::string(c.node().op()) + "', which it cannot: " + u.why);
  }
  log = log && sdk::log_enabled("kernel_code");
  std::vector<Program> with_origins;
  if (log) with_origins = d.programs;
  GpuModuleText text(target_->dialect());
  for (Program& p : d.programs) {
    p = anonymous(std::move(p));
    d.launches.push_back(text.add(p));  // blocks are expressions of this very program's pool
  }
  const std::string body = text.text();
  d.key = gpu.architecture + "\n" + target_->compiler() + "\n" + body;
  char hash[20];
  std::snprintf(hash, sizeof hash, "_%012llx", static_cast<unsigned long long>(fnv(body) >> 16));
  d.name = name_of(c.graph(), c.node());
  for (size_t i = 0; i < d.programs.size(); ++i) {
    const std::string nameless = std::exchange(d.programs[i].name, "k_" + d.name + hash + (i > 0 ? "_any" : ""));
    for (GpuLaunch& l : d.launches[i]) {
      if (!l.entry.starts_with(nameless))
        throw sdk::Error(TSR_BUG, "TSR-B005", "entry '" + l.entry + "' does not begin with its program's name, " + nameless);
      d.entries.push_back(l.entry = d.programs[i].name + l.entry.substr(nameless.size()));
    }
  }
  if (log) {
    GpuModuleText shown(target_->dialect());
    for (size_t i = 0; i < d.programs.size(); ++i) {
      with_origins[i].name = d.programs[i].name;
      shown.add(with_origins[i]);
    }
    sdk::log("kernel_code", "// " + std::string(device()) + ": " + schedule + "\n" + shown.text());
  }
  return d;
}

std::vector<std::shared_ptr<SimtCode>> SimtBackend::build(const std::vector<WrittenKernel*>& kernels,
                                                          const GpuDescription& device) {
  std::vector<std::shared_ptr<SimtCode>> out(kernels.size());
  std::map<std::string, size_t> fresh;  // by key: the first of each
  std::vector<size_t> missing;
  {
    std::lock_guard lock(mutex_);
    for (size_t i = 0; i < kernels.size(); ++i) {
      const auto it = code_.find(kernels[i]->key);
      if (it != code_.end()) out[i] = it->second.lock();
      if (!out[i] && fresh.emplace(kernels[i]->key, i).second) missing.push_back(i);
    }
  }
  const size_t most = std::max<size_t>(1, target_->kernels_of_unit());
  const size_t threads = static_cast<size_t>(std::max(1, sdk::host().core->num_threads()));
  // As many units as threads, or more where they would be too long.
  const size_t units = std::min(missing.size(), std::max(threads, (missing.size() + most - 1) / most));
  sdk::parallel(static_cast<int64_t>(units), 1, [&](int64_t begin, int64_t end) {
    for (int64_t u = begin; u < end; ++u) {
      SimtUnit unit;
      GpuModuleText text(target_->dialect());
      std::vector<Program> programs;
      std::vector<std::pair<size_t, size_t>> first;  // of a kernel: its first entry
      for (size_t m = static_cast<size_t>(u); m < missing.size(); m += units) {
        WrittenKernel& d = *kernels[missing[m]];
        first.emplace_back(missing[m], unit.entries.size());
        for (Program& p : d.programs) {
          text.add(p);
          unit.programs.push_back(&p);
        }
        unit.entries.insert(unit.entries.end(), d.entries.begin(), d.entries.end());
      }
      unit.text = text.text();
      auto built = std::make_shared<SimtBuilt>();
      built->bytes = target_->build(unit, device);
      built->entries = unit.entries;
      for (const auto& [i, at] : first) out[i] = std::make_shared<SimtCode>(SimtCode{built, at});
    }
  });
  std::lock_guard lock(mutex_);
  if (code_.size() > 4096) std::erase_if(code_, [](const auto& c) { return c.second.expired(); });
  for (const size_t i : missing) code_[kernels[i]->key] = out[i];
  for (size_t i = 0; i < kernels.size(); ++i)
    if (!out[i]) out[i] = out[fresh[kernels[i]->key]];
  return out;
}

void SimtBackend::prepare(std::span<const sdk::Compile> requests) {
  if (std::any_of(requests.begin(), requests.end(), [](const sdk::Compile& c) { return c.tune() != 0; })) {
    static std::mutex one_at_a_time;  // two plans that measure at once measure each other
    const std::lock_guard lock(one_at_a_time);
    const MeasuringBudget budget(requests[0].tune_seconds());
    measure(requests, budget);
    tune(requests, budget);
  }
  std::map<uint32_t, std::vector<std::pair<const sdk::Compile*, std::unique_ptr<WrittenKernel>>>> by_index;
  for (const sdk::Compile& c : requests)
    if (generates(c.graph(), c.node()))
      by_index[index_of(c.p->device)].emplace_back(&c, std::make_unique<WrittenKernel>(write_tuned(c)));
  for (auto& [index, written] : by_index) {
    std::vector<WrittenKernel*> kernels;
    for (auto& [request, kernel] : written) kernels.push_back(kernel.get());
    const std::vector<std::shared_ptr<SimtCode>> codes = build(kernels, target_->description(index));
    for (size_t i = 0; i < codes.size(); ++i) kernels[i]->code = codes[i];
  }
  for (auto& [index, written] : by_index)
    for (auto& [request, kernel] : written) prepared_.keep(*request, std::move(kernel));
}

SimtBackend::WrittenKernel SimtBackend::written(const sdk::Compile& c) {
  if (const std::unique_ptr<WrittenKernel> kept = prepared_.take(c)) return std::move(*kept);
  WrittenKernel d = write_tuned(c);
  d.code = build({&d}, target_->description(index_of(c.p->device)))[0];
  return d;
}

std::unique_ptr<SimtKernel> SimtBackend::made(const sdk::Compile& c, WrittenKernel d) {
  SimtKernel::Plan plan;
  plan.name = std::string(device()) + "." + d.name;
  plan.operands = d.operand_of;
  for (const tsr_dim s : d.symbol_dims) plan.symbols.push_back(sdk::launch_dim(c, s));
  plan.strides = std::move(d.strides);
  plan.in_place = d.in_place;
  size_t entry = d.code->first;
  for (size_t i = 0; i < d.programs.size(); ++i) {
    plan.variants.push_back(SimtKernel::variant(std::move(d.programs[i]), d.launches[i], entry, d.result_of));
    entry += d.launches[i].size();
  }
  return std::make_unique<SimtKernel>(target_, d.code->built, index_of(c.p->device), std::move(plan));
}

std::unique_ptr<sdk::Kernel> SimtBackend::compile(const sdk::Compile& c) { return made(c, written(c)); }

std::unique_ptr<sdk::Kernel> SimtBackend::deserialize(std::string_view bytes) { return SimtKernel::restore(target_, bytes); }

}  // namespace tessera::kit
