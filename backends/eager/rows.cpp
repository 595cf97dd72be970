// SPDX-License-Identifier: Apache-2.0
#include "rows.hpp"

#include <algorithm>

#include "copy.hpp"

namespace eager {
namespace {

constexpr int64_t kStackRow = 4096;  // longest row that is buffered on the stack
constexpr int64_t kSlots = 64;       // buffers in the workspace: tasks that may run at once

bool trailing(int rank, std::span<const int> axes) {
  int lowest = rank;
  for (int a : axes) lowest = std::min(lowest, a);
  return rank - lowest == static_cast<int>(axes.size());
}

// The loops over rows, and those inside a row: strides of the output and of x.
struct RowPlan {
  Nest<2> kept, row;
  int64_t rows = 1, n = 1;
};

RowPlan plan_rows(const View& x, const View& out, std::span<const int> axes) {
  RowPlan p;
  for (int d = 0; d < x.rank(); ++d) {
    const int64_t step[2] = {out.strides[d], x.strides[d]};
    const bool inside = std::find(axes.begin(), axes.end(), d) != axes.end();
    (inside ? p.row : p.kept).push(x.sizes[d], step);
    (inside ? p.n : p.rows) *= x.sizes[d];
  }
  return p;
}

void gather_row(const Isa& isa, const View& x, const Nest<2>& row, int64_t base, int64_t n, void* dst) {
  if (row.rank == 0) return load_run(isa, x.dtype, x.data, base, 1, n, dst);
  const int64_t inner = row.sizes[row.rank - 1], step = row.strides[1][row.rank - 1], size = comp_size(comp_of(x.dtype));
  for (int64_t i = 0; i < n; i += inner) {
    int64_t at[2];
    row.offsets(i / inner, at, 1);
    load_run(isa, x.dtype, x.data, base + at[1], step, inner, static_cast<char*>(dst) + i * size);
  }
}

void scatter_row(const Isa& isa, const View& out, const Nest<2>& row, int64_t base, int64_t n, const void* src) {
  const int64_t size = comp_size(comp_of(out.dtype));
  if (row.rank == 0 || (row.rank == 1 && row.strides[0][0] == 1)) return store_run(isa, out.dtype, out.data, base, n, src);
  const int64_t inner = row.sizes[row.rank - 1], step = row.strides[0][row.rank - 1];
  alignas(64) char converted[kTile * 16];
  for (int64_t i = 0; i < n; i += inner) {
    int64_t at[2];
    row.offsets(i / inner, at, 1);
    for (int64_t j = 0; j < inner; j += kTile) {
      const int64_t m = std::min(kTile, inner - j);
      store_run(isa, out.dtype, converted, 0, m, static_cast<const char*>(src) + (i + j) * size);
      View from, to;
      from.data = converted, from.dtype = to.dtype = out.dtype;
      from.sizes.push(m), from.strides.push(1);
      to.data = out.data, to.offset = base + at[0] + j * step;
      to.sizes.push(m), to.strides.push(step);
      copy_view(from, to);
    }
  }
}

}  // namespace

int64_t rows_workspace(const Dims& sizes, std::span<const int> axes, uint32_t dtype) {
  int64_t n = 1, rows = 1;
  for (int d = 0; d < sizes.rank; ++d) (std::find(axes.begin(), axes.end(), d) != axes.end() ? n : rows) *= sizes[d];
  // A contiguous output row of a native type is its own buffer.
  if (n <= kStackRow || (trailing(sizes.rank, axes) && is_native(dtype))) return 0;
  return std::min(rows, kSlots) * ((n * comp_size(comp_of(dtype)) + 63) / 64 * 64);
}

void for_rows(const Isa& isa, const View& x, const tsr_tensor& out_tensor, std::span<const int> axes, void* workspace,
              FunctionRef<void(int64_t, const void*, void*, int64_t)> f) {
  const View out(out_tensor);
  const View dense = dense_view(out.data, out.dtype, out.sizes);
  const RowPlan p = plan_rows(x, dense, axes);
  if (p.rows == 0 || p.n == 0) return;
  const int64_t size = comp_size(comp_of(x.dtype));
  const bool native = is_native(x.dtype);
  const bool x_direct = native && (p.row.rank == 0 || (p.row.rank == 1 && p.row.strides[1][0] == 1));
  const bool out_direct = native && (p.row.rank == 0 || (trailing(x.rank(), axes)));
  const bool packed = tessera::is_packed(out.dtype);
  const int64_t slot = (p.n * size + 63) / 64 * 64;

  const auto rows = [&](int64_t begin, int64_t end, void* buffer) {
    for (int64_t r = begin; r < end; ++r) {
      int64_t at[2];
      p.kept.offsets(r, at);
      void* y = out_direct ? static_cast<char*>(out.data) + at[0] * size : buffer;
      const void* in = y;
      if (x_direct)
        in = static_cast<const char*>(x.data) + (x.offset + at[1]) * size;
      else
        gather_row(isa, x, p.row, x.offset + at[1], p.n, y);
      f(r, in, y, p.n);
      if (!out_direct) scatter_row(isa, dense, p.row, at[0], p.n, y);
    }
  };

  const int64_t grain = packed ? p.rows : std::max<int64_t>(1, kGrain / 4 / p.n);
  if (out_direct || p.n <= kStackRow) {
    // Columns: neighbouring rows share the cache lines of x and of the output.
    const Nest<2>& k = p.kept;
    const int64_t width = k.rank > 0 ? k.sizes[k.rank - 1] : 0;
    const bool columns = !packed && !x_direct && !out_direct && p.row.rank == 1 && width >= 4 &&
                         k.strides[0][k.rank - 1] == 1 && k.strides[1][k.rank - 1] == 1;
    if (!columns)
      return sdk::parallel(p.rows, grain, [&](int64_t begin, int64_t end) {
        alignas(64) char buffer[kStackRow * 8];
        rows(begin, end, buffer);
      });
    constexpr int64_t kColumns = 16;
    const int64_t many = std::clamp<int64_t>(kStackRow * 4 / p.n, 1, kColumns), blocks = (width + many - 1) / many;
    return sdk::parallel(p.rows / width * blocks, std::max<int64_t>(1, grain / many), [&](int64_t begin, int64_t end) {
      alignas(64) char buffer[kStackRow * 4 * 8];
      alignas(64) float rows_of[kStackRow * 4];  // other dtypes: converted along memory first
      for (int64_t b = begin; b < end; ++b) {
        const int64_t c0 = b % blocks * many, m = std::min(many, width - c0), first = b / blocks * width + c0;
        int64_t at[2];
        k.offsets(first, at);
        View tile;  // [column][row position]
        tile.data = buffer, tile.dtype = x.dtype;
        tile.sizes.push(m), tile.sizes.push(p.n);
        tile.strides.push(p.n), tile.strides.push(1);
        View from = tile, to = tile;
        from.data = x.data, from.offset = x.offset + at[1], from.strides[0] = 1, from.strides[1] = p.row.strides[1][0];
        to.data = out.data, to.offset = at[0], to.strides[0] = 1, to.strides[1] = p.row.strides[0][0];
        View wide = tile;
        wide.data = rows_of, wide.strides[0] = 1, wide.strides[1] = m;
        if (!native) {
          for (int64_t i = 0; i < p.n; ++i)
            load_run(isa, x.dtype, x.data, from.offset + i * from.strides[1], 1, m, rows_of + i * m);
          tile.dtype = wide.dtype = TSR_F32;
          copy_view(wide, tile);
        } else {
          copy_view(from, tile);
        }
        for (int64_t c = 0; c < m; ++c) f(first + c, buffer + c * p.n * size, buffer + c * p.n * size, p.n);
        if (native) {
          copy_view(tile, to);
          continue;
        }
        copy_view(tile, wide);
        for (int64_t i = 0; i < p.n; ++i)
          store_run(isa, out.dtype, out.data, to.offset + i * to.strides[1], m, rows_of + i * m);
      }
    });
  }
  const int64_t slots = std::min(p.rows, kSlots);
  sdk::parallel(slots, packed ? slots : 1, [&](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s)
      rows(p.rows * s / slots, p.rows * (s + 1) / slots, static_cast<char*>(workspace) + s * slot);
  });
}

int64_t read_rows_workspace(const Dims& sizes, std::span<const int> axes, uint32_t dtype) {
  int64_t n = 1, rows = 1;
  for (int d = 0; d < sizes.rank; ++d) (std::find(axes.begin(), axes.end(), d) != axes.end() ? n : rows) *= sizes[d];
  return n <= kStackRow ? 0 : std::min(rows, kSlots) * ((n * comp_size(comp_of(dtype)) + 63) / 64 * 64);
}

void read_rows(const Isa& isa, const View& x, std::span<const int> axes, void* workspace,
               FunctionRef<void(int64_t, const void*, int64_t)> f) {
  const RowPlan p = plan_rows(x, x, axes);
  if (p.rows == 0) return;
  const int64_t size = comp_size(comp_of(x.dtype)), slot = (p.n * size + 63) / 64 * 64;
  const bool direct = is_native(x.dtype) && (p.row.rank == 0 || (p.row.rank == 1 && p.row.strides[1][0] == 1));
  const auto rows = [&](int64_t begin, int64_t end, void* buffer) {
    for (int64_t r = begin; r < end; ++r) {
      int64_t at[2];
      p.kept.offsets(r, at);
      const void* in = buffer;
      if (direct)
        in = static_cast<const char*>(x.data) + (x.offset + at[1]) * size;
      else if (p.n > 0)
        gather_row(isa, x, p.row, x.offset + at[1], p.n, buffer);
      f(r, in, p.n);
    }
  };
  if (direct || p.n <= kStackRow)
    return sdk::parallel(p.rows, std::max<int64_t>(1, kGrain / 4 / std::max<int64_t>(1, p.n)), [&](int64_t begin, int64_t end) {
      alignas(64) char buffer[kStackRow * 8];
      rows(begin, end, buffer);
    });
  const int64_t slots = std::min(p.rows, kSlots);
  sdk::parallel(slots, 1, [&](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s)
      rows(p.rows * s / slots, p.rows * (s + 1) / slots, static_cast<char*>(workspace) + s * slot);
  });
}

const void* flat_values(const Isa& isa, const tsr_tensor& t, void* buffer) {
  const View v(t);
  if (v.dense() && is_native(v.dtype)) return v.data;
  Nest<1> nest;
  for (int d = 0; d < v.rank(); ++d) nest.push(v.sizes[d], &v.strides[d]);
  const int64_t total = v.elements(), inner = nest.rank > 0 ? nest.sizes[nest.rank - 1] : 1;
  const int64_t step = nest.rank > 0 ? nest.strides[0][nest.rank - 1] : 1, size = comp_size(comp_of(v.dtype));
  for (int64_t i = 0; i < total; i += inner) {
    int64_t at[1];
    nest.offsets(i / inner, at, nest.rank > 0 ? 1 : 0);
    load_run(isa, v.dtype, v.data, at[0], step, inner, static_cast<char*>(buffer) + i * size);
  }
  return buffer;
}

}  // namespace eager
