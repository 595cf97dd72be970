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
#include "runtime/tensor.hpp"
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

// Fixes what the import has asked for, as far as the arguments say it. False: nothing new could be fixed.
bool fix_what_is_needed(ImportCall& call, const Graph& g, std::span<const ModelArgument> arguments,
                        std::vector<ImportedModel::Missing>& missing) {
  bool progress = false;
  missing.clear();
  const auto lacks = [&](const std::string& name, const char* what) {
    for (const ImportedModel::Missing& m : missing)
      if (m.input == name && std::string_view(m.what) == what) return;
    missing.push_back({name, what});
  };
  const auto fix_rank = [&](const std::string& name, const tsr_tensor& t) -> ImportCall::Fixed& {
    ImportCall::Fixed& f = call.fix(name);
    if (!f.has_rank) {
      f.has_rank = progress = true;
      f.sizes.assign(t.rank, -1);
    }
    return f;
  };
  for (const auto& [name, what] : call.needed_inputs) {
    const ModelArgument* const a = find(arguments, name);
    constexpr int64_t kMostFixed = 65536;  // a value of more elements is data: it would hardly come a second time
    if (a && what == TSR_NEED_VALUE && num_elements({a->tensor.sizes, a->tensor.rank}) > kMostFixed) continue;
    if (!a || (what == TSR_NEED_VALUE && !a->tensor.data && num_elements({a->tensor.sizes, a->tensor.rank}) > 0)) {
      lacks(name, what == TSR_NEED_RANK ? "rank" : "value");
    } else if (what == TSR_NEED_RANK) {
      fix_rank(name, a->tensor);
    } else if (!call.value_of(name)) {
      call.fix(name).value = &a->tensor;
      progress = true;
    }
  }
  if (call.needed_symbols.empty()) return progress;
  const tsr_region& body = g.region(0);
  for (uint32_t i = 0; i < body.num_inputs; ++i) {
    const tsr_value& v = g.value(body.inputs[i]);
    for (uint32_t d = 0; d < v.type->rank; ++d) {
      if (!TSR_DIM_IS_EXPR(v.type->sizes[d])) continue;
      std::vector<uint32_t> symbols;
      g.sizes().collect_symbols(v.type->sizes[d], symbols);
      if (std::none_of(symbols.begin(), symbols.end(), [&](uint32_t s) {
            return std::find(call.needed_symbols.begin(), call.needed_symbols.end(), s) != call.needed_symbols.end();
          }))
        continue;
      const ModelArgument* const a = find(arguments, v.name);
      if (!a || a->tensor.rank != v.type->rank) {
        lacks(v.name, "sizes");
        continue;
      }
      ImportCall::Fixed& f = fix_rank(v.name, a->tensor);
      progress = progress || f.sizes[d] == -1;
      f.sizes[d] = a->tensor.sizes[d];
    }
  }
  return progress;
}

// Whether the arguments keep what the graph assumes about sizes of its inputs.
bool keep_assumptions(const Graph& g, std::span<const ModelArgument> arguments) {
  const Sizes& sizes = g.sizes();
  std::vector<int64_t> values(sizes.symbols().size(), 0);
  std::vector<uint8_t> known(values.size(), 0);
  const tsr_region& body = g.region(0);
  for (uint32_t i = 0; i < body.num_inputs; ++i) {
    const tsr_value& v = g.value(body.inputs[i]);
    const ModelArgument* const a = find(arguments, v.name);
    if (!a || a->tensor.rank != v.type->rank) continue;
    for (uint32_t d = 0; d < v.type->rank; ++d) {
      if (!TSR_DIM_IS_EXPR(v.type->sizes[d])) continue;
      const tsr_dim_expr& e = sizes.exprs()[TSR_DIM_EXPR_ID(v.type->sizes[d])];
      if (e.op != TSR_DIM_SYMBOL) continue;
      values[e.symbol] = a->tensor.sizes[d];
      known[e.symbol] = 1;
    }
  }
  return std::all_of(sizes.assumptions().begin(), sizes.assumptions().end(), [&](const Assumption& a) {
    std::vector<uint32_t> symbols;
    sizes.collect_symbols(a.a, symbols);
    sizes.collect_symbols(a.b, symbols);
    if (!std::all_of(symbols.begin(), symbols.end(), [&](uint32_t s) { return known[s] != 0; })) return true;
    try {
      return Sizes::holds(a.relation, sizes.evaluate(a.a, values), sizes.evaluate(a.b, values));
    } catch (const Error&) {
      return false;  // it overflows for these sizes
    }
  });
}

}  // namespace

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

ImportedModel import_model(const std::shared_ptr<const Context>& context, const std::string& path,
                           std::span<const ModelArgument> arguments, std::span<const ModelArgument> bound,
                           WhenLacking lacking) {
  const ModelFile file(path);
  const std::string_view bytes = file.bytes();
  const Factory& frontend = context->frontend_for(path, bytes.substr(0, 4096));
  const CompileOptions options = compile_options(context, context->config(), nullptr);
  const ServiceScope scope(options);
  ImportCall call;
  for (const ModelArgument& b : bound) call.fix(b.name).value = &b.tensor;
  ImportedModel out;
  for (;;) {
    auto g = std::make_unique<Graph>(context->ops(), std::filesystem::path(path).stem().string());
    g->set_import_call(&call);
    call.needed_inputs.clear();
    call.needed_symbols.clear();
    try {
      frontend.check(frontend.as<tsr_frontend>().import(frontend.self, bytes.data(), bytes.size(), path.c_str(), g->handle()));
    } catch (const Error&) {
      if (call.needed_inputs.empty() && call.needed_symbols.empty()) throw;
      if (fix_what_is_needed(call, *g, arguments, out.missing)) continue;
      if (out.missing.empty() || lacking == WhenLacking::kThrow) throw;
      out.inputs = inputs_of(*g);
      out.inputs->keep(context);
      return out;
    }
    g->set_import_call(nullptr);
    out.open = !call.needed_inputs.empty() || !call.needed_symbols.empty();
    if (out.open && !arguments.empty() && !keep_assumptions(*g, arguments) &&
        fix_what_is_needed(call, *g, arguments, out.missing))
      continue;
    for (const ImportCall::Fixed& f : call.fixed()) {
      if (!f.asked)
        throw user_error("TSR-E013", path + ": no input '" + f.name + "' whose value can be fixed",
                         "name an input of the model; frontend '" + frontend.name + "' reads this file");
      if (find(bound, f.name)) continue;
      out.fixed.push_back({f.name, f.value != nullptr, f.sizes});
      log_notice(path + ": the graph depends on the " + (f.value ? "value" : "sizes") + " of input '" + f.name +
                 "', so code is compiled for it; another one compiles again");
    }
    out.missing.clear();
    // It outlives its context handle, and borrows the records.
    if (!g->in_transaction()) g->begin("import");
    g->name_outputs();  // as the model says: whatever passes make of the values
    g->commit();
    g->keep(context);
    verify(*g);
    g->reset_scratch();
    out.graph = std::move(g);
    return out;
  }
}

}  // namespace tessera::core
