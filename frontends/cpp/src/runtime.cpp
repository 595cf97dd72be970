// SPDX-License-Identifier: Apache-2.0
#include "runtime.hpp"

#include <cstdlib>
#include <mutex>
#include <optional>

#include "tessera/dtypes.hpp"

namespace tessera {

namespace {
std::string text_of(const std::string& code, const std::string& message, const std::string& hint) {
  return "error[" + code + "] " + message + (hint.empty() ? "" : "\n  hint: " + hint);
}
thread_local const Context* t_context = nullptr;

std::shared_ptr<tsr_context> create(const char* path, const char* text, const std::vector<std::string>& overrides) {
  std::vector<const char*> sets;
  for (const std::string& o : overrides) sets.push_back(o.c_str());
  tsr_context_options options{};
  options.struct_size = sizeof options;
  options.config_path = path;
  options.config_text = text;
  options.overrides = sets.data();
  options.num_overrides = sets.size();
  tsr_context* c = nullptr;
  detail::check(detail::api().context_create(&options, &c));
  return {c, detail::api().context_destroy};
}
}  // namespace

Error::Error(std::string code, std::string message, std::string hint)
    : std::runtime_error(text_of(code, message, hint)),
      code_(std::move(code)),
      message_(std::move(message)),
      hint_(std::move(hint)) {}

namespace detail {

const tsr_api& api() {
  static const tsr_api* const table = tsr_get_api(TSR_ABI_MAJOR);
  if (!table || table->abi_minor < TSR_ABI_MINOR)
    throw EnvironmentError("TSR-E001", "libtessera is of another version than the headers this program was built with",
                           "install matching versions of the library and its headers");
  return *table;
}

void check(tsr_error* e) {
  if (!e) return;
  const tsr_host_core& c = *api().host->core;
  const std::string code = c.error_code(e), message = c.error_message(e), hint = c.error_hint(e) ? c.error_hint(e) : "";
  const uint32_t family = c.error_family(e);
  c.error_free(e);
  if (family == TSR_USER) throw UserError(code, message, hint);
  if (family == TSR_ENVIRONMENT) throw EnvironmentError(code, message, hint);
  throw BugError(code, message, hint);
}

void fail(const char* code, const std::string& message, const std::string& hint) { throw UserError(code, message, hint); }

tsr_error* to_c(const Error& e) {
  const uint32_t family = dynamic_cast<const UserError*>(&e)          ? TSR_USER
                          : dynamic_cast<const EnvironmentError*>(&e) ? TSR_ENVIRONMENT
                                                                      : TSR_BUG;
  return api().host->core->error_create(family, e.code().c_str(), e.message().c_str(),
                                        e.hint().empty() ? nullptr : e.hint().c_str());
}

}  // namespace detail

Context::Context(const std::string& path, const std::vector<std::string>& overrides)
    : handle_(create(path.c_str(), nullptr, overrides)) {}
Context Context::from_text(const std::string& toml, const std::vector<std::string>& overrides) {
  return Context(create(nullptr, toml.c_str(), overrides));
}

const Context& Context::current() {
  if (t_context) return *t_context;
  // Made once and never destroyed: tensors with static storage may outlive every destructor.
  static const Context* const process = [] {
    const char* path = std::getenv("TESSERA_CONFIG");
    return new Context(create(path && *path ? path : nullptr, nullptr, {}));
  }();
  return *process;
}

ContextScope::ContextScope(const Context& c) : previous_(t_context) { t_context = &c; }
ContextScope::~ContextScope() { t_context = previous_; }

std::string_view name(DType d) { return dtype_name(static_cast<uint32_t>(d)); }

Device::Device(const char* name) : id_(detail::api().host->core->device_id(name)) {}
std::string Device::name() const { return detail::api().host->core->device_name(id_); }

// ---------------------------------------------------------------------------------------------------------------- sizes

namespace {

// The value an expression had for the arguments of the traced call.
std::optional<int64_t> hint_of(const tsr_tables& t, tsr_dim d) {
  if (!TSR_DIM_IS_EXPR(d)) return d;
  const tsr_dim_expr& e = *TSR_AT(tsr_dim_expr, t.exprs, t.expr_stride, TSR_DIM_EXPR_ID(d));
  if (e.op == TSR_DIM_SYMBOL) {
    const tsr_symbol& s = *TSR_AT(tsr_symbol, t.symbols, t.symbol_stride, e.symbol);
    if (s.unbacked || s.hint < 0) return std::nullopt;
    return s.hint;
  }
  const auto a = hint_of(t, e.lhs), b = hint_of(t, e.rhs);
  if (!a || !b) return std::nullopt;
  auto floordiv = [](int64_t x, int64_t y) { return y == 0 ? 0 : x / y - (x % y != 0 && ((x < 0) != (y < 0))); };
  switch (e.op) {
    case TSR_DIM_ADD: return *a + *b;
    case TSR_DIM_SUB: return *a - *b;
    case TSR_DIM_MUL: return *a * *b;
    case TSR_DIM_FLOORDIV: return floordiv(*a, *b);
    case TSR_DIM_MOD: return *a - floordiv(*a, *b) * *b;
    case TSR_DIM_MIN: return *a < *b ? *a : *b;
    default: return *a < *b ? *b : *a;
  }
}

SymInt combine(tsr_dim_op op, SymInt a, SymInt b) {
  tsr_graph* g = a.graph() ? a.graph() : b.graph();
  if (!g || (!a.is_symbolic() && !b.is_symbolic())) {
    const int64_t x = a.raw(), y = b.raw();
    int64_t r = 0;
    bool overflow = false;
    switch (op) {
      case TSR_DIM_ADD: overflow = __builtin_add_overflow(x, y, &r); break;
      case TSR_DIM_SUB: overflow = __builtin_sub_overflow(x, y, &r); break;
      case TSR_DIM_MUL: overflow = __builtin_mul_overflow(x, y, &r); break;
      default:
        if (y == 0) detail::fail("TSR-S003", "a size is divided by zero");
        r = x / y - (x % y != 0 && ((x < 0) != (y < 0)));
        if (op == TSR_DIM_MOD) r = x - r * y;
    }
    if (overflow) detail::fail("TSR-S001", "size arithmetic overflows 64 bits", "use smaller sizes");
    return SymInt(r);
  }
  tsr_dim out = 0;
  detail::check(detail::graph_api().dim(g, op, a.raw(), b.raw(), &out));
  return TSR_DIM_IS_EXPR(out) ? SymInt(out, g) : SymInt(static_cast<int64_t>(out));
}

}  // namespace

SymInt::operator int64_t() const {
  if (!is_symbolic()) return d_;
  const auto hint = hint_of(*detail::graph_api().tables(g_), d_);
  if (!hint)
    detail::fail("TSR-G002", "the size " + str() + " depends on data, but host code asks for its value",
                 "keep it symbolic (do not convert it to int64_t), or compute it outside the compiled function");
  detail::check(detail::graph_api().dim_require(g_, TSR_EQ, d_, *hint, "host code read this size as a number"));
  return *hint;
}

std::string SymInt::str() const {
  if (!is_symbolic()) return std::to_string(d_);
  const tsr_tables& t = *detail::graph_api().tables(g_);
  const tsr_dim_expr& e = *TSR_AT(tsr_dim_expr, t.exprs, t.expr_stride, TSR_DIM_EXPR_ID(d_));
  if (e.op == TSR_DIM_SYMBOL) return TSR_AT(tsr_symbol, t.symbols, t.symbol_stride, e.symbol)->name;
  static const char* const kOp[] = {"", " + ", " - ", " * ", " // ", " % ", " min ", " max "};
  return "(" + SymInt(e.lhs, g_).str() + kOp[e.op] + SymInt(e.rhs, g_).str() + ")";
}

SymInt operator+(SymInt a, SymInt b) { return combine(TSR_DIM_ADD, a, b); }
SymInt operator-(SymInt a, SymInt b) { return combine(TSR_DIM_SUB, a, b); }
SymInt operator*(SymInt a, SymInt b) { return combine(TSR_DIM_MUL, a, b); }
SymInt operator/(SymInt a, SymInt b) { return combine(TSR_DIM_FLOORDIV, a, b); }
SymInt operator%(SymInt a, SymInt b) { return combine(TSR_DIM_MOD, a, b); }

bool operator==(SymInt a, SymInt b) {
  if (a.raw() == b.raw()) return true;
  if (!a.is_symbolic() && !b.is_symbolic()) return false;
  tsr_graph* g = a.graph() ? a.graph() : b.graph();
  const tsr_truth known = detail::graph_api().dim_compare(g, TSR_EQ, a.raw(), b.raw());
  if (known != TSR_UNKNOWN) return known == TSR_TRUE;
  // Undecided: the answer for the traced call holds, and becomes a guard.
  const tsr_tables& t = *detail::graph_api().tables(g);
  const auto x = hint_of(t, a.raw()), y = hint_of(t, b.raw());
  if (!x || !y)
    detail::fail("TSR-G002", "whether " + a.str() + " == " + b.str() + " depends on data, but host code branches on it",
                 "use tessera::cond, or compute it outside the compiled function");
  detail::check(
      detail::graph_api().dim_require(g, *x == *y ? TSR_EQ : TSR_NE, a.raw(), b.raw(), "host code compared these sizes"));
  return *x == *y;
}

}  // namespace tessera
