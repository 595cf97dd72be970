// SPDX-License-Identifier: Apache-2.0
#include "compiler.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <unordered_map>

#include "tessera/plugin.hpp"
#include "toolchains.hpp"

namespace cpu {
namespace {

namespace sdk = tessera::sdk;
using Clock = std::chrono::steady_clock;

int64_t ns_since(Clock::time_point t) { return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - t).count(); }

}  // namespace

Compiler::Compiler(Options options) : options_(std::move(options)), cache_(options_.cache_directory) {
  if (options_.toolchain == Toolchain::kClang && !have_clang())
    throw sdk::Error(
        TSR_ENVIRONMENT, "TSR-J002", "this build has no compiler inside the process: LLVM 19 was not found",
        "install llvm-19-dev, libclang-19-dev and libclang-cpp19-dev and build again, or set compiler = \"system\"");
  // The version goes into keys. clang's is that of the headers: asking the library would load it.
  toolchain_ = options_.toolchain == Toolchain::kClang ? "clang " TESSERA_CPU_LLVM_VERSION : "";
}

Compiler::~Compiler() = default;

std::string Compiler::key_of(const Source& s) const {
  std::string key = "tessera cpu object 1\n" + toolchain_ + "\n" + options_.isa->name + " " + options_.isa->flags + "\nO" +
                    std::to_string(s.optimize) + "\n";
  for (const std::string& symbol : s.symbols) key += symbol + " ";
  return key + "\n" + s.text;
}

std::string Compiler::build(const Source& s) const {
  return options_.toolchain == Toolchain::kClang ? clang_build(s, *options_.isa)
                                                 : system_build(s, *options_.isa, options_.system_compiler);
}

ModulePtr Compiler::load(const Source& s, const std::string& object) const {
  return options_.toolchain == Toolchain::kClang ? clang_load(s, object) : system_load(s, object);
}

// ---- batches: several texts in one compilation, for what that costs apart from their length

namespace {

constexpr size_t kBatch = 12;                         // texts of one compilation at most
constexpr std::string_view kReference = "batch of ";  // a cached object may be the key of the batch that holds it

// Some functions of a module: one source of a batch, with the module of all of them.
class Part final : public Module {
 public:
  Part(ModulePtr whole, size_t first, size_t count) : Part(whole, whole->linked(), first, count) {}
  Part(ModulePtr whole, std::shared_ptr<const Linked> linked, size_t first, size_t count) : whole_(std::move(whole)) {
    for (size_t i = 0; i < count; ++i) addresses_.push_back(whole_->address(first + i));
    linked_ = std::move(linked);
    first_ = first;
  }

 private:
  ModulePtr whole_;
};

}  // namespace

void Compiler::store(const std::string& key, const std::string& object) const {
  const std::string trouble = cache_.put(key, object);
  if (!trouble.empty() && sdk::log_enabled("perf_hints"))
    sdk::log("perf_hints", "cpu: compiled objects are not cached: " + trouble);
}

ModulePtr Compiler::link(const Source& s, const std::string& object, const std::string& key) {
  const Clock::time_point start = Clock::now();
  ModulePtr m = load(s, object);
  link_ns_.fetch_add(ns_since(start), std::memory_order_relaxed);
  const std::string path = cache_.path_of(key);
  auto linked = std::make_shared<const Linked>(Linked{path.substr(path.rfind('/') + 1), object, s.symbols});
  return std::make_shared<Part>(std::move(m), std::move(linked), 0, s.symbols.size());
}

ModulePtr Compiler::restore(Linked linked, size_t first, size_t count) {
  if (first > linked.symbols.size() || count > linked.symbols.size() - first)
    throw sdk::Error(TSR_ENVIRONMENT, "TSR-J004", "a saved kernel names functions that its object has not");
  std::lock_guard lock(mutex_);
  ModulePtr whole;
  if (const auto it = restored_.find(linked.id); it != restored_.end()) whole = it->second.lock();
  if (!whole || whole->linked()->symbols != linked.symbols || whole->linked()->object.size() != linked.object.size()) {
    Source s;
    s.name = linked.id;
    s.symbols = linked.symbols;
    const Clock::time_point start = Clock::now();
    const ModulePtr m = load(s, linked.object);
    link_ns_.fetch_add(ns_since(start), std::memory_order_relaxed);
    const size_t all = linked.symbols.size();
    const std::string id = linked.id;
    whole = std::make_shared<Part>(m, std::make_shared<const Linked>(std::move(linked)), 0, all);
    if (restored_.size() > 1024) std::erase_if(restored_, [](const auto& r) { return r.second.expired(); });
    restored_[id] = whole;
  }
  from_disk_.fetch_add(1, std::memory_order_relaxed);
  return std::make_shared<Part>(whole, first, count);
}

// Sources of equal optimisation, whose symbols differ.
std::vector<ModulePtr> Compiler::build_batch(std::span<const Source* const> batch, std::span<const std::string* const> keys) {
  const Clock::time_point start = Clock::now();
  const auto count = [&] {
    compile_ns_.fetch_add(ns_since(start), std::memory_order_relaxed);
    compiled_.fetch_add(static_cast<int64_t>(batch.size()), std::memory_order_relaxed);
  };
  if (batch.size() == 1) {
    const std::string object = build(*batch[0]);
    count();
    store(*keys[0], object);
    return {link(*batch[0], object, *keys[0])};
  }
  Source all;
  all.optimize = batch[0]->optimize;
  for (size_t i = 0; i < batch.size(); ++i) {
    all.name += (i ? ", " : "") + batch[i]->name;
    // Helpers of one text are apart from those of another; extern "C" names are seen by all.
    all.text += "namespace part" + std::to_string(i) + " {\n" + batch[i]->text + "}\n";
    all.symbols.insert(all.symbols.end(), batch[i]->symbols.begin(), batch[i]->symbols.end());
  }
  const std::string object = build(all), key = key_of(all);
  count();
  store(key, object);
  const ModulePtr whole = link(all, object, key);
  std::vector<ModulePtr> out;
  size_t first = 0;
  for (size_t i = 0; i < batch.size(); ++i) {
    store(*keys[i], std::string(kReference) + std::to_string(first) + " " + key);
    out.push_back(std::make_shared<Part>(whole, first, batch[i]->symbols.size()));
    first += batch[i]->symbols.size();
  }
  return out;
}

// What the disk has; null: nothing. `batches`: of this call, by key.
ModulePtr Compiler::from_disk(const Source& s, const std::string& key, std::map<std::string, ModulePtr>& batches) {
  const std::optional<std::string> object = cache_.get(key);
  if (!object) return nullptr;
  if (!object->starts_with(kReference)) {
    from_disk_.fetch_add(1, std::memory_order_relaxed);
    return link(s, *object, key);
  }
  const size_t blank = object->find(' ', kReference.size());
  if (blank == std::string::npos) return nullptr;
  const auto first = static_cast<size_t>(std::strtoull(object->c_str() + kReference.size(), nullptr, 10));
  const std::string batch = object->substr(blank + 1);
  auto it = batches.find(batch);
  if (it == batches.end()) {
    // The key of a batch says which symbols it has, on its fifth line; see key_of().
    const std::optional<std::string> bytes = cache_.get(batch);
    if (!bytes) return nullptr;
    Source all;
    all.name = s.name;
    size_t at = 0;
    for (int line = 0; line < 4 && at != std::string::npos; ++line) at = batch.find('\n', at ? at + 1 : 0);
    if (at == std::string::npos) return nullptr;
    for (size_t end = batch.find('\n', at + 1), from = at + 1; from < end;) {
      const size_t stop = batch.find(' ', from);
      if (stop == std::string::npos || stop > end) break;
      all.symbols.push_back(batch.substr(from, stop - from));
      from = stop + 1;
    }
    it = batches.emplace(batch, link(all, *bytes, batch)).first;
  }
  from_disk_.fetch_add(1, std::memory_order_relaxed);
  return std::make_shared<Part>(it->second, first, s.symbols.size());
}

ModulePtr Compiler::find(const Source& source) const {
  std::lock_guard lock(mutex_);
  const auto it = modules_.find(key_of(source));
  return it == modules_.end() ? nullptr : it->second.lock();
}

namespace {

// As many batches as threads, or a multiple where they would be too long, so that all threads are done at about the same time;
// texts of about the same length in each. A source goes alone when a symbol of its is another's too.
std::vector<std::vector<size_t>> batches_of(std::span<const Source> sources, std::vector<size_t> which) {
  std::vector<std::vector<size_t>> out;
  std::vector<size_t> together;
  std::unordered_map<std::string_view, int> uses;
  for (const size_t i : which)
    for (const std::string& symbol : sources[i].symbols) ++uses[symbol];
  for (const size_t i : which) {
    bool alone = sources[i].optimize != 1;
    for (const std::string& symbol : sources[i].symbols) alone = alone || uses[symbol] > 1;
    if (alone)
      out.push_back({i});
    else
      together.push_back(i);
  }
  if (together.empty()) return out;
  std::stable_sort(together.begin(), together.end(),
                   [&](size_t a, size_t b) { return sources[a].text.size() > sources[b].text.size(); });
  const size_t threads = static_cast<size_t>(std::max(1, sdk::host().core->num_threads()));
  const size_t rounds = (together.size() + kBatch * threads - 1) / (kBatch * threads);
  const size_t n = std::min(together.size(), rounds * threads);
  std::vector<std::pair<size_t, std::vector<size_t>>> bins(n);  // length, sources
  for (const size_t i : together) {
    auto& bin = *std::min_element(bins.begin(), bins.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    bin.first += sources[i].text.size() + 4000;  // and what any text costs
    bin.second.push_back(i);
  }
  for (auto& bin : bins) out.push_back(std::move(bin.second));
  return out;
}

}  // namespace

std::vector<ModulePtr> Compiler::compile(std::span<const Source> sources) {
  if (options_.toolchain == Toolchain::kSystem) {
    std::lock_guard lock(mutex_);
    if (toolchain_.empty()) toolchain_ = system_version(options_.system_compiler);
  }
  std::vector<std::string> keys;
  keys.reserve(sources.size());
  for (const Source& s : sources) keys.push_back(key_of(s));
  std::vector<ModulePtr> out(sources.size());
  std::vector<size_t> missing;  // the first source of each key that this process does not have
  {
    std::unordered_map<std::string_view, size_t> seen;
    std::lock_guard lock(mutex_);
    for (size_t i = 0; i < sources.size(); ++i) {
      const auto it = modules_.find(keys[i]);
      if (it != modules_.end()) out[i] = it->second.lock();
      if (out[i])
        from_memory_.fetch_add(1, std::memory_order_relaxed);
      else if (seen.emplace(keys[i], i).second)
        missing.push_back(i);
    }
  }
  std::vector<size_t> to_build;
  if (cache_.enabled()) {
    std::map<std::string, ModulePtr> batches;
    for (const size_t i : missing)
      if (!(out[i] = from_disk(sources[i], keys[i], batches))) to_build.push_back(i);
  } else {
    to_build = missing;
  }
  // Two callers that miss the same text at once both compile it; the later module replaces the earlier in the table.
  const std::vector<std::vector<size_t>> batches = batches_of(sources, to_build);
  sdk::parallel(static_cast<int64_t>(batches.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      const std::vector<size_t>& batch = batches[static_cast<size_t>(k)];
      std::vector<const Source*> texts;
      std::vector<const std::string*> names;
      for (const size_t i : batch) texts.push_back(&sources[i]), names.push_back(&keys[i]);
      const std::vector<ModulePtr> made = build_batch(texts, names);
      for (size_t j = 0; j < batch.size(); ++j) out[batch[j]] = made[j];
    }
  });
  std::lock_guard lock(mutex_);
  if (modules_.size() > 1024) std::erase_if(modules_, [](const auto& m) { return m.second.expired(); });
  for (const size_t i : missing) modules_[keys[i]] = out[i];
  for (size_t i = 0; i < sources.size(); ++i)
    if (!out[i]) {
      out[i] = modules_.find(keys[i])->second.lock();
      from_memory_.fetch_add(1, std::memory_order_relaxed);
    }
  return out;
}

Compiler::Stats Compiler::stats() const {
  Stats s;
  s.compiled = compiled_.load();
  s.from_disk = from_disk_.load();
  s.from_memory = from_memory_.load();
  s.compile_seconds = static_cast<double>(compile_ns_.load()) * 1e-9;
  s.link_seconds = static_cast<double>(link_ns_.load()) * 1e-9;
  return s;
}

void fail_text(const Source& s, const std::string& messages) {
  std::string text = "the text of kernel '" + s.name + "' does not compile:\n" + messages;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  throw sdk::Error(TSR_BUG, "TSR-J001", text, "TESSERA_LOGS=kernel_code prints the whole text; report it");
}

}  // namespace cpu
