// SPDX-License-Identifier: Apache-2.0
#include "tessera/kit/fit.hpp"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "tessera/dtypes.hpp"

namespace tessera::kit {

namespace {

// All that lower() looks at, as bytes: equal text, equal kernels (but for names).
class StructureText {
 public:
  explicit StructureText(const Piece& p) {
    std::unordered_map<tsr_id, uint32_t> number;
    const auto define = [&](const sdk::Value& v) { number.emplace(v.id, static_cast<uint32_t>(number.size())); };
    for (const sdk::Value& v : p.inputs) {
      define(v);
      put(v.type());
    }
    for (const sdk::Node& n : p.nodes) {
      put(n.op());
      put(n.num_operands());
      for (uint32_t i = 0; i < n.num_operands(); ++i) {
        if (!n.has_operand(i)) {
          put(TSR_NONE);
        } else if (const auto at = number.find(n.operand(i).id); at != number.end()) {
          put(at->second);
        } else {  // a literal, or what makes the piece unfit
          const sdk::Node def = n.operand(i).def();
          if (!def || !def.is("constant")) {
            complete_ = false;
            return;
          }
          put(TSR_NONE - 1);
          put(*def.attr("value").p);
        }
      }
      for (const tsr_attr& a : n.attrs()) put(a);
      put(n.num_results());
      for (uint32_t i = 0; i < n.num_results(); ++i) {
        define(n.result(i));
        put(n.result(i).type());
      }
    }
    for (const sdk::Value& v : p.outputs) {
      const auto at = number.find(v.id);
      put(at == number.end() ? TSR_NONE : at->second);
    }
  }

  const std::string& text() const { return text_; }
  bool complete() const { return complete_; }
  bool has_symbols() const { return has_symbols_; }

 private:
  static constexpr size_t kLargestTensor = 4096;  // bytes that are worth comparing

  void bytes(const void* data, size_t n) { text_.append(static_cast<const char*>(data), n); }
  template <class T>
  requires std::is_arithmetic_v<T>
  void put(T x) { bytes(&x, sizeof x); }
  void put(std::string_view s) {
    put(s.size());
    bytes(s.data(), s.size());
  }
  void put_dims(const int64_t* dims, size_t n) {
    put(n);
    for (size_t i = 0; i < n; ++i) {
      has_symbols_ = has_symbols_ || TSR_DIM_IS_EXPR(dims[i]);
      put(dims[i]);
    }
  }
  void put(const sdk::Type& t) {
    put(t.p->dtype);
    put_dims(t.p->sizes, t.p->rank);
    put(t.p->strides != nullptr);
    if (t.p->strides) put_dims(t.p->strides, t.p->rank);
    put(t.p->device);
  }
  void put(const tsr_attr& a) {
    put(std::string_view(a.name));
    put(a.kind);
    switch (a.kind) {
      case TSR_ATTR_INT:
      case TSR_ATTR_BOOL:
      case TSR_ATTR_DTYPE: return put(a.i);
      case TSR_ATTR_DIM: return put_dims(&a.i, 1);
      case TSR_ATTR_FLOAT: return put(a.f);
      case TSR_ATTR_STRING: return put(std::string_view(a.s));
      case TSR_ATTR_INTS:
      case TSR_ATTR_DIMS: return put_dims(a.ints, a.count);
      case TSR_ATTR_FLOATS: put(a.count); return bytes(a.floats, a.count * sizeof *a.floats);
      case TSR_ATTR_TENSOR: return put(*a.tensor);
      default: complete_ = false;
    }
  }
  void put(const tsr_tensor& t) {
    int64_t elements = 1;
    for (uint32_t i = 0; i < t.rank; ++i) elements *= t.sizes[i];
    const auto n = static_cast<size_t>(storage_bytes(t.dtype, elements));
    if (n > kLargestTensor) {
      complete_ = false;
      return;
    }
    put(t.dtype);
    put_dims(t.sizes, t.rank);
    bytes(t.data, n);
  }

  std::string text_;
  bool complete_ = true, has_symbols_ = false;
};

Fit fit_of(const Piece& piece) {
  try {
    const Lowered l = lower(piece, "k");
    return {{}, function_calls(l.kernel), l.symbol_dims.size()};
  } catch (const Unfit& u) {
    return {u.why, 0, 0};
  }
}

// Of pieces whose sizes are known.
class Shared {
 public:
  bool find(const std::string& key, Fit* out) {
    const std::lock_guard lock(mutex_);
    const auto at = fits_.find(key);
    if (at == fits_.end()) return false;
    *out = at->second;
    return true;
  }
  void add(const std::string& key, const Fit& fit) {
    const std::lock_guard lock(mutex_);
    bytes_ += key.size();
    if (bytes_ > kMostBytes) fits_.clear(), bytes_ = key.size();
    fits_.emplace(key, fit);
  }

 private:
  static constexpr size_t kMostBytes = size_t{16} << 20;  // of keys
  std::mutex mutex_;
  std::unordered_map<std::string, Fit> fits_;
  size_t bytes_ = 0;
};

}  // namespace

int function_calls(const Kernel& k) {
  return static_cast<int>(std::count_if(k.insts.begin(), k.insts.end(), [](const Inst& x) { return x.op == Op::Call; }));
}

std::string structure_key(const Piece& piece, bool within_graph) {
  const StructureText s(piece);
  return s.complete() && (within_graph || !s.has_symbols()) ? s.text() : std::string();
}

Fit FitCache::of(const Piece& piece) {
  static Shared shared;
  const StructureText s(piece);
  if (!s.complete()) return fit_of(piece);
  if (s.has_symbols()) {
    const auto [at, fresh] = of_graph_.try_emplace(s.text());
    if (fresh) try {
        at->second = fit_of(piece);
      } catch (...) {
        of_graph_.erase(at);
        throw;
      }
    return at->second;
  }
  Fit fit;
  if (shared.find(s.text(), &fit)) return fit;
  fit = fit_of(piece);
  shared.add(s.text(), fit);
  return fit;
}

}  // namespace tessera::kit
