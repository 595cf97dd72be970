// SPDX-License-Identifier: Apache-2.0
// What is made of Philox's words; docs/random.md is the definition. Work is split at tiles of kTile elements, whose words begin
// at a block of their own, so the split never shows.
#include "random.hpp"

#include <algorithm>
#include <cmath>

#include "copy.hpp"

namespace eager {
namespace {

struct State {
  uint64_t key, counter;
};
State read_state(const tsr_tensor& t) {
  const int64_t step = t.strides[0];
  const auto* p = static_cast<const uint64_t*>(t.data);
  return {p[0], p[step]};
}
// Writes the state after `words` words.
void write_state(const tsr_tensor& t, State s, int64_t words) {
  auto* p = static_cast<uint64_t*>(t.data);
  p[0] = s.key;
  p[1] = s.counter + static_cast<uint64_t>((words + 3) / 4);
}

uint64_t wide(const uint32_t* w) { return uint64_t{w[0]} << 32 | w[1]; }

// Runs f(first element, count, words of those elements) over tiles; `per` words per element.
template <class F>
void for_tiles(const Isa& isa, State s, int64_t count, int64_t per, F f) {
  sdk::parallel((count + kTile - 1) / kTile, kGrain / 8 / kTile, [&](int64_t begin, int64_t end) {
    uint32_t buffer[kTile * 2];
    for (int64_t t = begin; t < end; ++t) {
      const int64_t first = t * kTile, n = std::min(kTile, count - first);
      // Pairs (Box-Muller) may look at the partner of the last element.
      isa.philox(s.key, s.counter + static_cast<uint64_t>(first * per / 4), ((n + 1) / 2 * 2 * per + 3) / 4, buffer);
      f(first, n, buffer);
    }
  });
}

// Stores f32 values truncated toward zero to a narrower float: a value that rounds up is not allowed to reach 1.
void store_truncated(uint32_t dtype, void* data, int64_t index, float value) {
  tessera::store_from(dtype, data, index, value);
  const float stored = tessera::load_as<float>(dtype, data, index);
  if (!(stored > value)) return;
  // Rounded up: the next code below, which is one less for positive values of every format.
  if (tessera::dtype_bits(dtype) == 4) {
    const auto code = tessera::load_as<uint8_t>(TSR_U4, data, index);
    tessera::store_from(TSR_U4, data, index, static_cast<uint8_t>(code - 1));
  } else if (tessera::dtype_bits(dtype) == 8) {
    auto* p = static_cast<uint8_t*>(data) + index;
    if (*p > 0) --*p;  // e8m0 has nothing below its smallest value
  } else {
    --static_cast<uint16_t*>(data)[index];
  }
}

}  // namespace

KernelPtr make_random_bits(const Build& b, int) {
  return make_kernel(b, [isa = b.isa](const tsr_launch& l) {
    const State s = read_state(l.inputs[0]);
    const int64_t n = elements(l.outputs[0]);
    auto* out = static_cast<uint32_t*>(l.outputs[0].data);
    for_tiles(*isa, s, n, 1, [&](int64_t first, int64_t count, const uint32_t* w) { std::copy_n(w, count, out + first); });
    write_state(l.outputs[1], s, n);
  });
}

KernelPtr make_random_uniform(const Build& b, int) {
  return make_kernel(b, [isa = b.isa](const tsr_launch& l) {
    const State s = read_state(l.inputs[0]);
    const tsr_tensor& out = l.outputs[0];
    const int64_t n = elements(out), per = out.dtype == TSR_F64 ? 2 : 1;
    for_tiles(*isa, s, n, per, [&](int64_t first, int64_t count, const uint32_t* w) {
      for (int64_t i = 0; i < count; ++i) {
        if (out.dtype == TSR_F64) {
          static_cast<double*>(out.data)[first + i] = static_cast<double>(wide(w + 2 * i) >> 11) * 0x1p-53;
          continue;
        }
        const float u = static_cast<float>(w[i] >> 8) * 0x1p-24f;
        if (out.dtype == TSR_F32)
          static_cast<float*>(out.data)[first + i] = u;
        else
          store_truncated(out.dtype, out.data, first + i, u);
      }
    });
    write_state(l.outputs[1], s, n * per);
  });
}

KernelPtr make_random_normal(const Build& b, int) {
  return make_kernel(b, [isa = b.isa](const tsr_launch& l) {
    const State s = read_state(l.inputs[0]);
    const tsr_tensor& out = l.outputs[0];
    const bool f64 = out.dtype == TSR_F64;
    const int64_t n = elements(out), per = f64 ? 2 : 1;
    for_tiles(*isa, s, n, per, [&](int64_t first, int64_t count, const uint32_t* w) {
      alignas(64) double values[kTile];
      if (!f64) {
        alignas(64) float normal[kTile];
        isa->box_muller(w, (count + 1) / 2, normal);
        return store_run(*isa, out.dtype, out.data, first, count, normal);
      }
      for (int64_t i = 0; i < count; i += 2) {
        const double u = static_cast<double>((wide(w + 2 * i) >> 11) + 1) * 0x1p-53;
        const double v = static_cast<double>(wide(w + 2 * i + 2) >> 11) * 0x1p-53;
        const double r = std::sqrt(-2.0 * std::log(u)), angle = 6.283185307179586476925 * v;
        values[i] = r * std::cos(angle);
        values[i + 1] = r * std::sin(angle);
      }
      store_run(*isa, out.dtype, out.data, first, count, values);
    });
    write_state(l.outputs[1], s, (n + 1) / 2 * 2 * per);
  });
}

KernelPtr make_random_int(const Build& b, int) {
  const int64_t low = b.integer("low"), high = b.integer("high");
  if (high <= low)
    fail("TSR-R012",
         "op 'random_int': low = " + std::to_string(low) + " and high = " + std::to_string(high) +
             " leave nothing to choose from",
         "expected low < high");
  return make_kernel(
      b, [isa = b.isa, low, span = static_cast<uint64_t>(high) - static_cast<uint64_t>(low)](const tsr_launch& l) {
        const State s = read_state(l.inputs[0]);
        const tsr_tensor& out = l.outputs[0];
        const int64_t n = elements(out);
        for_tiles(*isa, s, n, 2, [&](int64_t first, int64_t count, const uint32_t* w) {
          for (int64_t i = 0; i < count; ++i) {
            __extension__ using Wide = unsigned __int128;
            const auto scaled = static_cast<uint64_t>(static_cast<Wide>(wide(w + 2 * i)) * span >> 64);
            tessera::store_from(out.dtype, out.data, first + i, static_cast<int64_t>(static_cast<uint64_t>(low) + scaled));
          }
        });
        write_state(l.outputs[1], s, n * 2);
      });
}

KernelPtr make_dropout(const Build& b, int) {
  const double p = b.number("p");
  return make_overwriting_kernel(b, [p, isa = b.isa](const tsr_launch& l) {
    const State s = read_state(l.inputs[1]);
    const View x(l.inputs[0]);
    const tsr_tensor& out = l.outputs[0];
    const int64_t n = x.elements();
    Nest<1> nest;
    for (int d = 0; d < x.rank(); ++d) nest.push(x.sizes[d], &x.strides[d]);
    const int64_t inner = nest.rank > 0 ? nest.sizes[nest.rank - 1] : 1,
                  step = nest.rank > 0 ? nest.strides[0][nest.rank - 1] : 1;
    const double scale = p < 1 ? 1.0 / (1.0 - p) : 0.0;
    for_tiles(*isa, s, n, 1, [&](int64_t first, int64_t count, const uint32_t* w) {
      alignas(64) char buffer[kTile * 8];
      const int64_t size = comp_size(comp_of(x.dtype));
      for (int64_t i = 0; i < count;) {
        int64_t at[1];
        nest.offsets((first + i) / inner, at, nest.rank > 0 ? 1 : 0);
        const int64_t column = (first + i) % inner, m = std::min(count - i, inner - column);
        load_run(*isa, x.dtype, x.data, at[0] + column * step, step, m, buffer + i * size);
        i += m;
      }
      const auto apply = [&](auto* v) {
        using T = std::remove_reference_t<decltype(*v)>;
        const T factor = static_cast<T>(scale);
        for (int64_t i = 0; i < count; ++i) {
          const bool keep = p < 1 && static_cast<double>(w[i] >> 8) * 0x1p-24 >= p;
          v[i] = keep ? v[i] * factor : T(0);
        }
      };
      if (x.dtype == TSR_F64)
        apply(reinterpret_cast<double*>(buffer));
      else
        apply(reinterpret_cast<float*>(buffer));
      store_run(*isa, out.dtype, out.data, first, count, buffer);
    });
    write_state(l.outputs[1], s, n);
  });
}

}  // namespace eager
