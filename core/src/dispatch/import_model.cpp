// SPDX-License-Identifier: Apache-2.0
#include "dispatch/import_model.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "compile/config_options.hpp"
#include "compile/services.hpp"
#include "context/context.hpp"
#include "ir/dense.hpp"
#include "ir/graph.hpp"
#include "ir/import_call.hpp"
#include "ir/verifier.hpp"
#include "log/log.hpp"
#include "memory/tensor.hpp"
#include "support/error.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::core {

namespace {

// A model file. Large ones are mapped, so that a frontend which reads parts of it brings only those into memory.
class ModelFile {
 public:
  explicit ModelFile(const std::string& path) {
    std::error_code code;
    if (std::filesystem::is_directory(path, code))
      throw user_error("TSR-R030", path + " is a directory; expected a model file", "name the file itself");
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0)
      throw user_error("TSR-R030", "cannot read " + path + ": " + std::strerror(errno), "check the path and its permissions");
    struct Close {
      int fd;
      ~Close() { ::close(fd); }
    } const close{fd};
    struct stat info {};
    if (::fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size >= kMapped) {
      length_ = static_cast<size_t>(info.st_size);
      mapping_ = ::mmap(nullptr, length_, PROT_READ, MAP_PRIVATE, fd, 0);
      if (mapping_ != MAP_FAILED) return;
      mapping_ = nullptr;
    }
    char buffer[1 << 16];
    for (ssize_t n = 0; (n = ::read(fd, buffer, sizeof buffer)) != 0;) {
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) throw environment_error("TSR-R030", "cannot read " + path + ": " + std::strerror(errno));
      bytes_.append(buffer, static_cast<size_t>(n));
    }
  }
  ModelFile(const ModelFile&) = delete;
  ~ModelFile() {
    if (mapping_) ::munmap(mapping_, length_);
  }
  std::string_view bytes() const { return mapping_ ? std::string_view(static_cast<const char*>(mapping_), length_) : bytes_; }

 private:
  static constexpr off_t kMapped = off_t{1} << 20;
  void* mapping_ = nullptr;
  size_t length_ = 0;
  std::string bytes_;
};

const ModelArgument* find(std::span<const ModelArgument> arguments, std::string_view name) {
  const auto at = std::find_if(arguments.begin(), arguments.end(), [&](const ModelArgument& a) { return a.name == name; });
  return at == arguments.end() ? nullptr : &*at;
}

void note_missing(std::vector<ImportedModel::Missing>& missing, const std::string& input, const char* what) {
  for (const ImportedModel::Missing& m : missing)
    if (m.input == input && std::string_view(m.what) == what) return;
  missing.push_back({input, what});
}

// The rank of an input is fixed, its sizes are still open. Sets `progress` unless that was so before.
ImportCall::Fixed& fix_rank(ImportCall& call, const std::string& name, uint32_t rank, bool& progress) {
  ImportCall::Fixed& f = call.fix(name);
  if (!f.has_rank) {
    f.has_rank = progress = true;
    f.sizes.assign(rank, ImportCall::kOpen);
  }
  return f;
}

// Fixes the sizes of inputs that mention these symbols, as far as the arguments say them. Where they are needed for the first
// time, the import only learns their values: relations among them may be enough. False: nothing new could be fixed.
bool fix_sizes(ImportCall& call, const Graph& g, std::span<const uint32_t> wanted, bool numbers,
               std::span<const ModelArgument> arguments, std::vector<ImportedModel::Missing>* missing) {
  if (wanted.empty()) return false;
  bool progress = false;
  const tsr_region& body = g.region(0);
  for (uint32_t i = 0; i < body.num_inputs; ++i) {
    const tsr_value& v = g.value(body.inputs[i]);
    for (uint32_t d = 0; d < v.type->rank; ++d) {
      if (!TSR_DIM_IS_EXPR(v.type->sizes[d])) continue;
      std::vector<uint32_t> symbols;
      g.sizes().collect_symbols(v.type->sizes[d], symbols);
      if (std::none_of(symbols.begin(), symbols.end(),
                       [&](uint32_t s) { return std::find(wanted.begin(), wanted.end(), s) != wanted.end(); }))
        continue;
      const ModelArgument* const a = find(arguments, v.name);
      if (!a || a->tensor.rank != v.type->rank) {
        if (missing) note_missing(*missing, v.name, "sizes");
        continue;
      }
      ImportCall::Fixed& f = fix_rank(call, v.name, a->tensor.rank, progress);
      const int64_t size = a->tensor.sizes[d];
      progress = progress || f.sizes[d] < 0;
      f.sizes[d] = numbers || f.sizes[d] != ImportCall::kOpen ? size : ImportCall::open_with(size);
    }
  }
  return progress;
}

std::vector<uint32_t> symbols_of(const Sizes& sizes, const Assumption& a) {
  std::vector<uint32_t> symbols;
  sizes.collect_symbols(a.a, symbols);
  sizes.collect_symbols(a.b, symbols);
  return symbols;
}

struct Comparison {
  bool has_sizes = true;               // the arguments have the sizes that the graph's inputs declare
  std::vector<uint32_t> contradicted;  // symbols of assumptions that do not hold for them
};

Comparison compared(const Graph& g, std::span<const ModelArgument> arguments) {
  Comparison out;
  const Sizes& sizes = g.sizes();
  std::vector<int64_t> values(sizes.symbols().size(), 0);
  std::vector<uint8_t> known(values.size(), 0);
  const tsr_region& body = g.region(0);
  for (uint32_t i = 0; i < body.num_inputs; ++i) {
    const tsr_value& v = g.value(body.inputs[i]);
    const ModelArgument* a = find(arguments, v.name);
    if (!a) a = find(arguments, g.input_name(body.inputs[i]));
    if (!a || a->tensor.rank != v.type->rank) {
      out.has_sizes = out.has_sizes && !a;
      continue;
    }
    for (uint32_t d = 0; d < v.type->rank; ++d) {
      const int64_t size = a->tensor.sizes[d];
      if (!TSR_DIM_IS_EXPR(v.type->sizes[d])) {
        out.has_sizes = out.has_sizes && v.type->sizes[d] == size;
        continue;
      }
      const tsr_dim_expr& e = sizes.exprs()[TSR_DIM_EXPR_ID(v.type->sizes[d])];
      if (e.op != TSR_DIM_SYMBOL) continue;
      const tsr_symbol& s = sizes.symbols()[e.symbol];
      out.has_sizes = out.has_sizes && size >= s.min && size <= s.max && (!known[e.symbol] || values[e.symbol] == size);
      values[e.symbol] = size;
      known[e.symbol] = 1;
    }
  }
  for (const Assumption& a : sizes.assumptions()) {
    const std::vector<uint32_t> symbols = symbols_of(sizes, a);
    if (!std::all_of(symbols.begin(), symbols.end(), [&](uint32_t s) { return known[s] != 0; })) continue;
    bool holds = false;
    try {
      holds = Sizes::holds(a.relation, sizes.evaluate(a.a, values), sizes.evaluate(a.b, values));
    } catch (const Error&) {}  // it overflows for these sizes
    if (!holds) out.contradicted.insert(out.contradicted.end(), symbols.begin(), symbols.end());
  }
  return out;
}

// Fixes what the import has asked for, as far as the arguments say it. False: nothing new could be fixed.
bool fix_what_is_needed(ImportCall& call, const Graph& g, std::span<const ModelArgument> arguments,
                        std::vector<ImportedModel::Missing>& missing) {
  bool progress = false;
  missing.clear();
  for (const auto& [name, what] : call.needed_inputs) {
    const ModelArgument* const a = find(arguments, name);
    constexpr int64_t kMostFixed = 65536;  // a value of more elements is data: it would hardly come a second time
    if (a && what == TSR_NEED_VALUE && num_elements({a->tensor.sizes, a->tensor.rank}) > kMostFixed) continue;
    if (!a || (what == TSR_NEED_VALUE && !a->tensor.data && num_elements({a->tensor.sizes, a->tensor.rank}) > 0)) {
      note_missing(missing, name, what == TSR_NEED_RANK ? "rank" : "value");
    } else if (what == TSR_NEED_RANK) {
      fix_rank(call, name, a->tensor.rank, progress);
    } else if (!call.value_of(name)) {
      call.fix(name).value = &a->tensor;
      progress = true;
    }
  }
  return fix_sizes(call, g, call.needed_symbols, false, arguments, &missing) || progress;
}

}  // namespace

std::vector<Assumption> assumed_of_inputs(const Graph& g) {
  const Sizes& sizes = g.sizes();
  std::vector<uint8_t> known(sizes.symbols().size(), 0);
  const tsr_region& body = g.region(0);
  for (uint32_t i = 0; i < body.num_inputs; ++i) {
    const tsr_type& t = *g.value(body.inputs[i]).type;
    for (uint32_t d = 0; d < t.rank; ++d)
      if (TSR_DIM_IS_EXPR(t.sizes[d]))
        if (const tsr_dim_expr& e = sizes.exprs()[TSR_DIM_EXPR_ID(t.sizes[d])]; e.op == TSR_DIM_SYMBOL) known[e.symbol] = 1;
  }
  std::vector<Assumption> out;
  for (const Assumption& a : sizes.assumptions()) {
    const std::vector<uint32_t> symbols = symbols_of(sizes, a);
    if (std::all_of(symbols.begin(), symbols.end(), [&](uint32_t s) { return known[s] != 0; })) out.push_back(a);
  }
  return out;
}

std::unique_ptr<Graph> inputs_of(const Graph& g) {
  auto out = std::make_unique<Graph>(g.ops(), g.tables().name);
  for (const tsr_symbol& s : g.sizes().symbols()) out->sizes().symbol(s.name, s.min, s.max, s.unbacked != 0, s.hint);
  const tsr_region& body = g.region(0);
  for (uint32_t i = 0; i < body.num_inputs; ++i) {
    const tsr_value& v = g.value(body.inputs[i]);
    std::vector<tsr_dim> sizes;
    for (uint32_t k = 0; k < v.type->rank; ++k)
      sizes.push_back(out->sizes().import(
          g.sizes(), v.type->sizes[k], [&](uint32_t symbol) { return out->sizes().find(g.sizes().symbols()[symbol].name); }));
    tsr_type type{};
    type.dtype = v.type->dtype;
    type.rank = v.type->rank;
    type.sizes = sizes.data();
    type.device = v.type->device;
    out->create_input(v.name, type, static_cast<tsr_input_kind>(v.input_kind), v.key);
  }
  out->commit();
  return out;
}

std::string value_text(const tsr_tensor& t) {
  constexpr int64_t kShown = 16;
  const int64_t n = num_elements({t.sizes, t.rank});
  if (n > kShown) return "one of " + std::to_string(n) + " elements";
  std::string text;
  append_dense(text, t, 0);  // dense<i64[2]: [0, 2]>
  const size_t colon = text.find(": ");
  return colon == std::string::npos ? text : text.substr(colon + 2, text.size() - colon - 3);
}

CallFit fit_of(const Graph& graph, std::span<const ModelArgument> arguments) {
  const Comparison c = compared(graph, arguments);
  return !c.has_sizes ? CallFit::kOther : c.contradicted.empty() ? CallFit::kFits : CallFit::kContradicts;
}

namespace {

// One model being imported, as often as it takes to know what has to be known.
class Import {
 public:
  Import(const std::shared_ptr<const Context>& context, const std::string& path, std::span<const ModelArgument> arguments,
         std::span<const ModelArgument> bound)
      : context_(context),
        path_(path),
        arguments_(arguments),
        bound_(bound),
        file_(path),
        frontend_(context->frontend_for(path, file_.bytes().substr(0, 4096))) {
    for (const ModelArgument& b : bound_) call_.fix(b.name).value = &b.tensor;
  }

  ImportedModel run(WhenLacking lacking) {
    ImportedModel out;
    std::unique_ptr<Graph> general;  // what the call contradicts, until another graph is found that it fits
    for (;;) {
      std::unique_ptr<Graph> g;
      try {
        import(g);
      } catch (const Error& e) {
        const bool asks = !call_.needed_inputs.empty() || !call_.needed_symbols.empty();
        if (asks && fix_what_is_needed(call_, *g, arguments_, out.missing)) continue;
        if (general && e.family() == TSR_USER) break;
        if (!asks) throw;
        if (out.missing.empty() || lacking == WhenLacking::kThrow) throw;
        out.inputs = inputs_of(*g);
        out.inputs->keep(context_);
        return out;
      }
      out.open = !call_.needed_inputs.empty() || !call_.needed_symbols.empty();
      const Comparison call = compared(*g, arguments_);
      out.fits = call.has_sizes && call.contradicted.empty();
      if (!call.contradicted.empty() && out.open && fix_what_is_needed(call_, *g, arguments_, out.missing)) continue;
      if (call.has_sizes && !call.contradicted.empty()) {
        // A size that the import has taken to be what it is not becomes a number.
        const bool fixed = fix_sizes(call_, *g, call.contradicted, true, arguments_, nullptr);
        if (!general) {
          list_fixed(out);
          general = std::move(g);
        }
        if (fixed) continue;
        break;
      }
      check_bound();
      list_fixed(out);
      announce(out.fixed);
      return finish(std::move(g), std::move(out));
    }
    // No numbers make the model one that takes the call: what the call contradicts, it says best.
    out.fits = false;
    check_bound();
    return finish(std::move(general), std::move(out));
  }

 private:
  void import(std::unique_ptr<Graph>& g) {
    g = std::make_unique<Graph>(context_->ops(), std::filesystem::path(path_).stem().string());
    g->set_import_call(&call_);
    call_.needed_inputs.clear();
    call_.needed_symbols.clear();
    const std::string_view bytes = file_.bytes();
    frontend_.call("import", [&] {
      return frontend_.as<tsr_frontend>().import(frontend_.self, bytes.data(), bytes.size(), path_.c_str(), g->handle());
    });
    g->set_import_call(nullptr);
  }

  void check_bound() const {
    for (const ImportCall::Fixed& f : call_.fixed())
      if (!f.asked && find(bound_, f.name))
        throw user_error("TSR-E013", path_ + ": no input '" + f.name + "' whose value can be fixed",
                         "name an input of the model; frontend '" + frontend_.name + "' reads this file");
  }

  void list_fixed(ImportedModel& out) const {
    out.fixed.clear();
    for (const ImportCall::Fixed& f : call_.fixed())
      if (f.asked && !find(bound_, f.name)) {
        FixedInput& x = out.fixed.emplace_back(FixedInput{f.name, f.value != nullptr, f.sizes});  // braces: clang below 16
        for (tsr_dim& d : x.sizes) d = std::max(d, ImportCall::kOpen);
      }
  }

  void announce(const std::vector<FixedInput>& fixed) const {
    for (const FixedInput& f : fixed)
      log_notice(path_ + ": the graph depends on the " + (f.value ? "value" : "sizes") + " of input '" + f.name +
                 "', so code is compiled for it; another one compiles again");
  }

  ImportedModel finish(std::unique_ptr<Graph> g, ImportedModel out) const {
    out.missing.clear();
    // It outlives its context handle, and borrows the records.
    if (!g->in_transaction()) g->begin("import");
    g->name_outputs();  // as the model says: whatever passes make of the values
    g->commit();
    g->keep(context_);
    verify(*g);
    g->reset_scratch();
    out.graph = std::move(g);
    return out;
  }

  const std::shared_ptr<const Context>& context_;
  const std::string& path_;
  const std::span<const ModelArgument> arguments_, bound_;
  const ModelFile file_;
  const Factory& frontend_;
  ImportCall call_;
};

}  // namespace

ImportedModel import_model(const std::shared_ptr<const Context>& context, const std::string& path,
                           std::span<const ModelArgument> arguments, std::span<const ModelArgument> bound,
                           WhenLacking lacking) {
  const CompileOptions options = compile_options(context, context->config(), nullptr);
  const ServiceScope scope(options);
  return Import(context, path, arguments, bound).run(lacking);
}

}  // namespace tessera::core
