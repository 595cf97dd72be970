// SPDX-License-Identifier: Apache-2.0
#include "reduction.hpp"

#include <algorithm>
#include <cmath>

#include "elementwise.hpp"
#include "isa/reduce_order.hpp"
#include "scalar_reduce.hpp"

namespace eager {

ReducePlan plan_reduction(const View& x, std::span<const int> axes) {
  ReducePlan p;
  for (int d = 0; d < x.rank(); ++d) {
    const bool gone = std::find(axes.begin(), axes.end(), d) != axes.end();
    (gone ? p.reduced : p.kept).push(x.sizes[d], &x.strides[d]);
    (gone ? p.extent : p.outputs) *= x.sizes[d];
  }
  return p;
}

const void* reduced_run(const Isa& isa, const View& x, const ReducePlan& plan, int64_t base, int64_t start, int64_t n,
                        void* buffer) {
  const Nest<1>& r = plan.reduced;
  if (n == 0) return buffer;
  if (r.rank <= 1) {
    const int64_t step = r.rank == 0 ? 1 : r.strides[0][0];
    return run_pointer(isa, x.dtype, x.data, x.offset + base + start * step, step, n, buffer);
  }
  const int64_t inner = r.sizes[r.rank - 1], step = r.strides[0][r.rank - 1], size = comp_size(comp_of(x.dtype));
  if (step == 1 && start % inner + n <= inner) {
    int64_t at[1];
    r.offsets(start, at);
    return run_pointer(isa, x.dtype, x.data, x.offset + base + at[0], 1, n, buffer);
  }
  char* dst = static_cast<char*>(buffer);
  for (int64_t i = 0; i < n;) {
    int64_t at[1];
    r.offsets((start + i) / inner, at, 1);
    const int64_t column = (start + i) % inner, m = std::min(n - i, inner - column);
    load_run(isa, x.dtype, x.data, x.offset + base + at[0] + column * step, step, m, dst);
    dst += m * size;
    i += m;
  }
  return buffer;
}

namespace {

int64_t chunks_of(int64_t extent) { return extent <= kChunk ? 1 : (extent + kChunk - 1) / kChunk; }

template <class T, class R>
void fold(const T* partial, int64_t stride, int64_t chunks, T* out) {
  ChunkFold<R, T> f;
  for (int64_t c = 0; c < chunks; ++c) f.add(partial[c * stride]);
  *out = f.result();
}

// Joins the results of chunks: partial[c * outputs + i], in the order of c.
void fold_chunks(Reduce kind, Comp comp, const void* partial, int64_t outputs, int64_t chunks, int64_t first, int64_t count,
                 void* out) {
  const auto each = [&](auto zero, auto op) {
    using T = decltype(zero);
    for (int64_t i = 0; i < count; ++i)
      fold<T, decltype(op)>(static_cast<const T*>(partial) + first + i, outputs, chunks, static_cast<T*>(out) + i);
  };
  const auto typed = [&](auto op) {
    switch (comp) {
      case Comp::F32: return each(float{}, op);
      case Comp::F64: return each(double{}, op);
      case Comp::I32: return each(int32_t{}, op);
      case Comp::I64: return each(int64_t{}, op);
      case Comp::U64: return each(uint64_t{}, op);
      default: return each(uint8_t{}, op);
    }
  };
  // Sums and products of integers wrap.
  const auto wrapping = [&](auto op) {
    switch (comp) {
      case Comp::I32: return each(uint32_t{}, op);
      case Comp::I64: return each(uint64_t{}, op);
      default: return typed(op);
    }
  };
  if (comp == Comp::C64 || comp == Comp::C128) return fold_complex(kind, comp, partial, outputs, chunks, first, count, out);
  switch (kind) {
    case Reduce::Prod: return wrapping(ProdOp{});
    case Reduce::Max: return typed(MaxOp{});
    case Reduce::Min: return typed(MinOp{});
    default: return wrapping(SumOp{});
  }
}

// Maps `n` values in place; value i belongs to result i * center_step.
template <class T>
void map_values(const Isa& isa, const ReduceSpec& spec, T* x, int64_t n, int64_t first, int64_t center_step) {
  const T* center = static_cast<const T*>(spec.center) + (spec.center ? first : 0);
  switch (spec.map) {
    case ReduceMap::None: return;
    case ReduceMap::Center:
    case ReduceMap::CenterExp:
      if (center_step == 0)
        for (int64_t i = 0; i < n; ++i) x[i] -= center[0];
      else
        for (int64_t i = 0; i < n; ++i) x[i] -= center[i];
      if (spec.map == ReduceMap::CenterExp) {
        TileArgs a{};
        a.n = n, a.out = x, a.in[0] = x, a.step[0] = 1;
        find_tile(isa, Op::Exp, CompOf<T>::value)(a);
      }
      return;
    case ReduceMap::Abs:
      for (int64_t i = 0; i < n; ++i) x[i] = std::fabs(x[i]);
      return;
    case ReduceMap::NonZero:
      for (int64_t i = 0; i < n; ++i) x[i] = x[i] != 0;
      return;
    case ReduceMap::PowAbs:
      for (int64_t i = 0; i < n; ++i) x[i] = static_cast<T>(std::pow(std::fabs(static_cast<double>(x[i])), spec.power));
  }
}
void map_run(const Isa& isa, const ReduceSpec& spec, Comp comp, void* x, int64_t n, int64_t first, int64_t center_step) {
  if (comp == Comp::F64)
    map_values(isa, spec, static_cast<double*>(x), n, first, center_step);
  else
    map_values(isa, spec, static_cast<float*>(x), n, first, center_step);
}

}  // namespace

int64_t reduce_workspace(const Dims& sizes, std::span<const int> axes) {
  int64_t outputs = 1, extent = 1;
  for (int d = 0; d < sizes.rank; ++d) (std::find(axes.begin(), axes.end(), d) != axes.end() ? extent : outputs) *= sizes[d];
  const int64_t chunks = chunks_of(extent);
  return chunks == 1 ? 0 : chunks * outputs * 16;
}

void reduce(const Isa& isa, const ReduceSpec& spec, const View& x, std::span<const int> axes, void* workspace,
            FunctionRef<void(int64_t, int64_t, const void*)> store) {
  const ReducePlan plan = plan_reduction(x, axes);
  if (plan.outputs == 0) return;
  const Comp comp = comp_of(x.dtype);
  const Reduce kind = spec.kind;
  const bool mapped = spec.map != ReduceMap::None;
  const int64_t size = comp_size(comp), chunks = chunks_of(plan.extent);
  ChunkFn chunk = isa.chunk(kind, comp);
  ColumnFn column = isa.column(kind, comp);
  if (!chunk) chunk = scalar_chunk(kind, comp);
  if (!chunk) fail("TSR-B032", "this reduction does not exist for dtype " + std::string(tessera::dtype_name(x.dtype)));

  // Columns side by side, when the results are contiguous in x and the reduced elements are not.
  const Nest<1>& kept = plan.kept;
  const bool columns = column && kept.rank > 0 && kept.strides[0][kept.rank - 1] == 1 && kept.sizes[kept.rank - 1] >= 8 &&
                       plan.extent > 1 && !(plan.reduced.rank == 1 && plan.reduced.strides[0][0] == 1);
  const int64_t row = columns ? kept.sizes[kept.rank - 1] : 1;
  const int64_t blocks_per_row = columns ? (row + kColumns - 1) / kColumns : 1;
  // Without columns, one task covers several results when each is short.
  const int64_t group = columns ? 1 : std::clamp<int64_t>(1024 / std::max<int64_t>(1, plan.extent), 1, 64);
  const int64_t blocks = columns ? plan.outputs / row * blocks_per_row : (plan.outputs + group - 1) / group;
  const int64_t work = std::max<int64_t>(1, std::min(plan.extent, kChunk) * (columns ? std::min(row, kColumns) : group));

  const int64_t tasks = chunks * blocks;
  sdk::parallel(tasks, spec.serial ? tasks : std::max<int64_t>(1, kGrain / work), [&](int64_t begin, int64_t end) {
    alignas(64) char buffer[kChunk * 16];
    alignas(64) char values[kColumns * 16];
    alignas(64) char lanes[kColumnLanes];
    for (int64_t task = begin; task < end; ++task) {
      const int64_t c = task / blocks, block = task % blocks;
      const int64_t start = c * kChunk, n = std::min(plan.extent - start, kChunk);
      int64_t first = 0, count = 1;
      if (columns) {
        const int64_t column0 = block % blocks_per_row * kColumns;
        first = block / blocks_per_row * row + column0;
        count = std::min(kColumns, row - column0);
        int64_t base[1];
        kept.offsets(first, base);
        // Rows in batches: their offsets, and the converted values where memory cannot be used as it is.
        const bool direct = is_native(x.dtype) && !mapped;
        constexpr int64_t kRows = 64;
        int64_t offsets[kRows];
        for (int64_t r = 0; r < n || r == 0; r += kRows) {
          const int64_t m = std::min(kRows, n - r);
          for (int64_t i = 0; i < m; ++i) {
            int64_t at[1];
            plan.reduced.offsets(start + r + i, at);
            offsets[i] = at[0];
            if (direct) continue;
            char* dst = buffer + i * kColumns * size;
            load_run(isa, x.dtype, x.data, x.offset + base[0] + at[0], 1, count, dst);
            if (mapped) map_run(isa, spec, comp, dst, count, first, 1);
            offsets[i] = i * kColumns;
          }
          column(direct ? static_cast<const char*>(x.data) + (x.offset + base[0]) * size : buffer, offsets, r, m, n, count,
                 lanes, values);
        }
      } else {
        first = block * group;
        count = std::min(group, plan.outputs - first);
        for (int64_t i = 0; i < count; ++i) {
          int64_t base[1];
          kept.offsets(first + i, base);
          const void* run = reduced_run(isa, x, plan, base[0], start, n, buffer);
          if (mapped) {
            if (run != buffer) std::memcpy(buffer, run, static_cast<size_t>(n * size));
            map_run(isa, spec, comp, buffer, n, first + i, 0);
            run = buffer;
          }
          chunk(run, n, values + i * size);
        }
      }
      if (chunks == 1)
        store(first, count, values);
      else
        std::memcpy(static_cast<char*>(workspace) + (c * plan.outputs + first) * size, values,
                    static_cast<size_t>(count * size));
    }
  });
  if (chunks == 1) return;
  sdk::parallel(plan.outputs, spec.serial ? plan.outputs : std::max<int64_t>(1, kGrain / chunks),
                [&](int64_t begin, int64_t end) {
                  alignas(64) char values[kColumns * 16];
                  for (int64_t i = begin; i < end; i += kColumns) {
                    const int64_t m = std::min(kColumns, end - i);
                    fold_chunks(kind, comp, workspace, plan.outputs, chunks, i, m, values);
                    store(i, m, values);
                  }
                });
}

}  // namespace eager
