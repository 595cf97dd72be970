// SPDX-License-Identifier: Apache-2.0
#include "elementwise.hpp"

#include <algorithm>
#include <cstring>

namespace eager {

namespace {

constexpr int kIn = kMaxTileInputs;

// `n` copies of the element at `src`.
void fill(void* dst, const void* src, int64_t size, int64_t n) {
  switch (size) {
    case 1: std::memset(dst, *static_cast<const unsigned char*>(src), static_cast<size_t>(n)); return;
    case 4: std::fill_n(static_cast<uint32_t*>(dst), n, *static_cast<const uint32_t*>(src)); return;
    case 8: std::fill_n(static_cast<uint64_t*>(dst), n, *static_cast<const uint64_t*>(src)); return;
    default: std::fill_n(static_cast<C128*>(dst), n, *static_cast<const C128*>(src)); return;
  }
}

enum class Layout { Dense, Scalar, Rows };  // in the output's order: contiguous, one value, anything else

struct Runner {
  const Isa& isa;
  const TileOp& op;
  Nest<kIn> nest;
  const tsr_tensor* in[kIn] = {};
  Layout layout[kIn] = {};
  alignas(16) char scalar[kIn][16] = {};
  void* out;
  uint32_t out_dtype;
  bool rows = false;  // pieces are parts of innermost rows, else tiles across rows
  int64_t inner = 1, max_piece = kTile;

  // One task: elements [begin, end), begin a multiple of kTile.
  uint32_t run(int64_t begin, int64_t end) const {
    alignas(64) char buffer[kIn][kTile * 16];
    alignas(64) char result[kTile * 16];
    uint32_t faults = 0;
    TileArgs args{};
    args.params = op.params;
    args.faults = &faults;
    for (int k = 0; k < op.num_inputs; ++k) {
      args.step[k] = 1;
      if (layout[k] != Layout::Scalar) continue;
      args.in[k] = scalar[k];
      args.step[k] = 0;
      if (!op.splat) {
        fill(buffer[k], scalar[k], comp_size(comp_of(in[k]->dtype)), std::min(kTile, end - begin));
        args.in[k] = buffer[k];
        args.step[k] = 1;
      }
    }
    const bool native_out = is_native(out_dtype);
    const int64_t out_size = comp_size(comp_of(out_dtype));
    for (int64_t i = begin; i < end;) {
      int64_t offset[kIn] = {};
      int64_t n = std::min(max_piece, end - i), column = 0;
      if (rows) {
        column = i % inner;
        n = std::min(n, inner - column);
        nest.offsets(i / inner, offset, 1);
      }
      for (int k = 0; k < op.num_inputs; ++k) {
        if (layout[k] == Layout::Scalar) continue;
        const uint32_t dtype = in[k]->dtype;
        args.step[k] = 1;
        if (layout[k] == Layout::Dense) {
          args.in[k] = run_pointer(isa, dtype, in[k]->data, i, 1, n, buffer[k]);
        } else if (!rows) {
          gather(k, i, n, buffer[k]);
          args.in[k] = buffer[k];
        } else if (const int64_t s = nest.strides[k][nest.rank - 1]; s != 0) {
          args.in[k] = run_pointer(isa, dtype, in[k]->data, offset[k] + column * s, s, n, buffer[k]);
        } else {
          alignas(16) char one[16];
          load_run(isa, dtype, in[k]->data, offset[k], 1, 1, one);
          const int64_t size = comp_size(comp_of(dtype));
          fill(buffer[k], one, size, op.splat ? 1 : n);
          args.in[k] = buffer[k];
          args.step[k] = op.splat ? 0 : 1;
        }
      }
      args.n = n;
      args.out = native_out ? static_cast<char*>(out) + i * out_size : result;
      op.fn(args);
      if (!native_out) store_run(isa, out_dtype, out, i, n, result);
      i += n;
    }
    return faults;
  }

  // Elements [flat, flat + n) of input k in the output's order, across short rows.
  void gather(int k, int64_t flat, int64_t n, char* dst) const {
    const int last = nest.rank - 1;
    const int64_t size = comp_size(comp_of(in[k]->dtype)), step = nest.strides[k][last];
    int64_t index[kMaxRank];
    int64_t offset = 0, rest = flat / inner;
    for (int d = last - 1; d >= 0; --d) {
      index[d] = rest % nest.sizes[d];
      rest /= nest.sizes[d];
      offset += index[d] * nest.strides[k][d];
    }
    int64_t column = flat % inner;
    while (n > 0) {
      const int64_t m = std::min(n, inner - column);
      load_run(isa, in[k]->dtype, in[k]->data, offset + column * step, step, m, dst);
      dst += m * size;
      n -= m;
      column = 0;
      for (int d = last - 1; d >= 0; --d) {
        offset += nest.strides[k][d];
        if (++index[d] < nest.sizes[d]) break;
        offset -= nest.sizes[d] * nest.strides[k][d];
        index[d] = 0;
      }
    }
  }
};

}  // namespace

uint32_t run_elementwise(const Isa& isa, const TileOp& op, const tsr_tensor* const* inputs, const tsr_tensor& out) {
  const Dims shape(out.sizes, out.rank);
  const int64_t total = shape.product();
  if (total == 0) return 0;
  Runner r{isa, op, {}, {}, {}, {}, out.data, out.dtype};
  int64_t strides[kIn][kMaxRank] = {};
  for (int k = 0; k < op.num_inputs; ++k) {
    r.in[k] = inputs[k];
    broadcast_strides(View(*inputs[k]), shape, strides[k]);
  }
  for (int d = 0; d < shape.rank; ++d) {
    int64_t step[kIn];
    for (int k = 0; k < kIn; ++k) step[k] = strides[k][d];
    r.nest.push(shape[d], step);
  }
  if (r.nest.rank > 0) r.inner = r.nest.sizes[r.nest.rank - 1];
  bool all_direct = is_native(out.dtype);
  for (int k = 0; k < op.num_inputs; ++k) {
    bool dense = true, scalar = true;
    int64_t expect = 1;
    for (int d = r.nest.rank - 1; d >= 0; --d) {
      dense = dense && r.nest.strides[k][d] == expect;
      scalar = scalar && r.nest.strides[k][d] == 0;
      expect *= r.nest.sizes[d];
    }
    r.layout[k] = dense && r.nest.rank > 0 ? Layout::Dense : scalar ? Layout::Scalar : Layout::Rows;
    if (r.layout[k] == Layout::Scalar) load_run(isa, inputs[k]->dtype, inputs[k]->data, 0, 1, 1, r.scalar[k]);
    const int64_t s = r.nest.rank > 0 ? r.nest.strides[k][r.nest.rank - 1] : 0;
    if (s == 0 ? !op.splat : (s != 1 || !is_native(inputs[k]->dtype))) all_direct = false;
  }
  const bool any_rows = r.layout[0] == Layout::Rows || r.layout[1] == Layout::Rows || r.layout[2] == Layout::Rows;
  r.rows = any_rows && r.inner >= 64 && !tessera::is_packed(out.dtype);
  if (any_rows && r.nest.rank <= 1) r.rows = !tessera::is_packed(out.dtype);
  r.max_piece = all_direct && (r.rows || !any_rows) ? INT64_MAX : kTile;

  std::atomic<uint32_t> faults{0};
  sdk::parallel((total + kTile - 1) / kTile, std::max<int64_t>(1, op.grain / kTile), [&](int64_t begin, int64_t end) {
    const uint32_t f = r.run(begin * kTile, std::min(total, end * kTile));
    if (f) faults.fetch_or(f, std::memory_order_relaxed);
  });
  return faults.load(std::memory_order_relaxed);
}

TileFn find_tile(const Isa& isa, Op op, Comp comp) {
  if (TileFn f = isa.tile(op, comp)) return f;
  return find_scalar_tile(op, comp);
}

}  // namespace eager
