// SPDX-License-Identifier: Apache-2.0
// Normalisations. Weights and statistics are read once, as values of the compute type; every row then goes through the ISA's
// row kernels.
#include "norm.hpp"

#include <cmath>

#include "reduction.hpp"
#include "rows.hpp"

namespace eager {
namespace {

int64_t padded(int64_t n) { return (n * 8 + 63) / 64 * 64; }  // bytes of n values of f32 or f64

const RowFns<float>& row_fns(const Isa& isa, float) { return isa.row_f32; }
const RowFns<double>& row_fns(const Isa& isa, double) { return isa.row_f64; }

// Runs f with a zero of the compute type of `dtype`: float or double.
template <class F>
void with_float(uint32_t dtype, F f) {
  if (comp_of(dtype) == Comp::F64)
    f(double{});
  else
    f(float{});
}

// Optional operand i as contiguous values, null when omitted. `slot` bytes of the workspace from `at` on serve as its buffer.
template <class T>
const T* values(const Isa& isa, const tsr_launch& l, uint32_t i, char* at) {
  if (i >= l.num_inputs || absent(l.inputs[i])) return nullptr;
  return static_cast<const T*>(flat_values(isa, l.inputs[i], at));
}

}  // namespace

KernelPtr make_layer_norm(const Build& b, int rms) {
  const int axis = b.axis("axis", b.rank());
  std::vector<int> axes;
  for (int d = axis; d < b.rank(); ++d) axes.push_back(d);
  const uint32_t dtype = b.operand(0).dtype();
  const double eps = b.number("eps");
  return make_overwriting_kernel(
      b,
      [axes, axis, rms, eps, isa = b.isa](const tsr_launch& l) {
        const View x(l.inputs[0]);
        const int64_t slot = padded(x.sizes.product(axis));
        char* space = static_cast<char*>(l.workspace);
        with_float(x.dtype, [&](auto zero) {
          using T = decltype(zero);
          const auto& fns = row_fns(*isa, zero);
          const T* w = values<T>(*isa, l, 1, space);
          const T* shift = rms ? nullptr : values<T>(*isa, l, 2, space + slot);
          for_rows(*isa, x, l.outputs[0], axes, space + 2 * slot, [&](int64_t, const void* in, void* y, int64_t n) {
            T mean, rstd;
            fns.moments(static_cast<const T*>(in), n, static_cast<T>(eps), rms != 0, &mean, &rstd);
            fns.normalise(static_cast<T*>(y), static_cast<const T*>(in), n, mean, rstd, w, shift);
          });
        });
      },
      [axes, axis, dtype, shape = b.shape(b.operand(0))](const int64_t* dims) {
        const Dims sizes = shape.get(dims);
        return 2 * padded(sizes.product(axis)) + rows_workspace(sizes, axes, dtype);
      });
}

namespace {

// [N, C, S..] as [N, groups, C / groups, S..].
View split_channels(const View& x, int64_t groups) {
  View v = x;
  v.sizes.rank = v.strides.rank = 0;
  for (int d = 0; d < x.rank(); ++d) {
    if (d == 1) {
      v.sizes.push(groups), v.strides.push(x.strides[1] * (x.sizes[1] / groups));
      v.sizes.push(x.sizes[1] / groups), v.strides.push(x.strides[1]);
    } else {
      v.sizes.push(x.sizes[d]), v.strides.push(x.strides[d]);
    }
  }
  return v;
}

}  // namespace

KernelPtr make_group_norm(const Build& b, int) {
  const int64_t groups = b.integer("groups");
  std::vector<int> axes;
  for (int d = 2; d < b.rank() + 1; ++d) axes.push_back(d);
  const uint32_t dtype = b.operand(0).dtype();
  const double eps = b.number("eps");
  return make_overwriting_kernel(
      b,
      [axes, groups, eps, isa = b.isa](const tsr_launch& l) {
        const View x(l.inputs[0]);
        const int64_t channels = x.sizes[1], per_group = channels / groups, inner = x.sizes.product(2);
        const View split = split_channels(x, groups);
        tsr_tensor out = l.outputs[0];
        out.rank = static_cast<uint32_t>(split.rank());
        out.sizes = split.sizes.v;
        const View dense = dense_view(out.data, out.dtype, split.sizes);
        out.strides = dense.strides.v;
        char* space = static_cast<char*>(l.workspace);
        const int64_t slot = padded(channels);
        with_float(x.dtype, [&](auto zero) {
          using T = decltype(zero);
          const auto& fns = row_fns(*isa, zero);
          const T* w = values<T>(*isa, l, 1, space);
          const T* shift = values<T>(*isa, l, 2, space + slot);
          for_rows(*isa, split, out, axes, space + 2 * slot, [&](int64_t row, const void* in, void* y, int64_t n) {
            T mean, rstd;
            fns.moments(static_cast<const T*>(in), n, static_cast<T>(eps), false, &mean, &rstd);
            const int64_t first = row % groups * per_group;
            for (int64_t c = 0; c < per_group; ++c)
              fns.affine(static_cast<T*>(y) + c * inner, static_cast<const T*>(in) + c * inner, inner, mean, rstd,
                         w ? w[first + c] : T(1), shift ? shift[first + c] : T(0));
          });
        });
      },
      [axes, groups, dtype, shape = b.shape(b.operand(0))](const int64_t* dims) {
        const Dims sizes = shape.get(dims);
        Dims split;
        for (int d = 0; d < sizes.rank; ++d) {
          if (d == 1)
            split.push(groups), split.push(sizes[1] / groups);
          else
            split.push(sizes[d]);
        }
        return 2 * padded(sizes[1]) + rows_workspace(split, axes, dtype);
      });
}

namespace {

// y = (x - mean[c]) * scale[c] + shift[c]. Rows are the spatial dims of one channel; with none or few of them, the channels of
// one sample.
template <class T>
void normalise_channels(const Isa& isa, const View& x, const tsr_tensor& out, const T* mean, const T* scale, const T* shift,
                        void* space) {
  const auto& fns = row_fns(isa, T{});
  const int64_t channels = x.sizes[1], inner = x.sizes.product(2);
  int axes[kMaxRank];
  size_t n = 0;
  const bool by_sample = inner < 16;  // then a row holds all channels, `inner` values each
  for (int d = by_sample ? 1 : 2; d < x.rank(); ++d) axes[n++] = d;
  for_rows(isa, x, out, {axes, n}, space, [&](int64_t row, const void* in, void* y, int64_t) {
    const T* from = static_cast<const T*>(in);
    T* to = static_cast<T*>(y);
    if (!by_sample) {
      const int64_t c = row % channels;
      return fns.affine(to, from, inner, mean[c], scale[c], T(1), shift[c]);
    }
    for (int64_t c = 0; c < channels; ++c)
      for (int64_t i = c * inner; i < (c + 1) * inner; ++i) to[i] = (from[i] - mean[c]) * scale[c] + shift[c];
  });
}

int64_t channel_rows_workspace(const Dims& sizes, uint32_t dtype) {
  std::vector<int> axes;
  for (int d = sizes.product(2) < 16 ? 1 : 2; d < sizes.rank; ++d) axes.push_back(d);
  return rows_workspace(sizes, axes, dtype);
}

}  // namespace

KernelPtr make_batch_norm(const Build& b, int) {
  const uint32_t dtype = b.operand(0).dtype();
  return make_overwriting_kernel(
      b,
      [eps = b.number("eps"), isa = b.isa](const tsr_launch& l) {
        const View x(l.inputs[0]);
        const int64_t channels = x.sizes[1], slot = padded(channels);
        char* space = static_cast<char*>(l.workspace);
        with_float(x.dtype, [&](auto zero) {
          using T = decltype(zero);
          const T* w = values<T>(*isa, l, 1, space);
          const T* shift = values<T>(*isa, l, 2, space + slot);
          const T* mean = values<T>(*isa, l, 3, space + 2 * slot);
          const T* var = values<T>(*isa, l, 4, space + 3 * slot);
          T* scale = reinterpret_cast<T*>(space + 4 * slot);
          T* zeros = reinterpret_cast<T*>(space + 5 * slot);
          for (int64_t c = 0; c < channels; ++c) {
            const T rstd = T(1) / std::sqrt(var[c] + static_cast<T>(eps));
            scale[c] = w ? w[c] * rstd : rstd;
            zeros[c] = 0;
          }
          normalise_channels<T>(*isa, x, l.outputs[0], mean, scale, shift ? shift : zeros, space + 6 * slot);
        });
      },
      [dtype, shape = b.shape(b.operand(0))](const int64_t* dims) {
        const Dims sizes = shape.get(dims);
        return 6 * padded(sizes[1]) + channel_rows_workspace(sizes, dtype);
      });
}

KernelPtr make_batch_norm_training(const Build& b, int) {
  const uint32_t dtype = b.operand(0).dtype();
  std::vector<int> axes;
  for (int d = 0; d < b.rank(); ++d)
    if (d != 1) axes.push_back(d);
  return make_kernel(
      b,
      [axes, eps = b.number("eps"), momentum = b.number("momentum"), isa = b.isa](const tsr_launch& l) {
        const View x(l.inputs[0]);
        const int64_t channels = x.sizes[1], slot = padded(channels);
        const double count = static_cast<double>(x.sizes[0]) * static_cast<double>(x.sizes.product(2));
        char* space = static_cast<char*>(l.workspace);
        with_float(x.dtype, [&](auto zero) {
          using T = decltype(zero);
          const T n = static_cast<T>(count);
          const T* w = values<T>(*isa, l, 1, space);
          const T* shift = values<T>(*isa, l, 2, space + slot);
          const T* old_mean = values<T>(*isa, l, 3, space + 2 * slot);
          const T* old_var = values<T>(*isa, l, 4, space + 3 * slot);
          T* scale = reinterpret_cast<T*>(space + 4 * slot);
          T* zeros = reinterpret_cast<T*>(space + 5 * slot);
          T* mean = reinterpret_cast<T*>(space + 6 * slot);
          T* squares = reinterpret_cast<T*>(space + 7 * slot);
          char* rest = space + 8 * slot;
          reduce(*isa, ReduceSpec{}, x, axes, rest, [&](int64_t first, int64_t m, const void* v) {
            for (int64_t i = 0; i < m; ++i) mean[first + i] = static_cast<const T*>(v)[i] / n;
          });
          ReduceSpec second;
          second.kind = Reduce::SumSq;
          second.map = ReduceMap::Center;
          second.center = mean;
          reduce(*isa, second, x, axes, rest, [&](int64_t first, int64_t m, const void* v) {
            for (int64_t i = 0; i < m; ++i) squares[first + i] = static_cast<const T*>(v)[i];
          });
          const T keep = static_cast<T>(1.0 - momentum), take = static_cast<T>(momentum);
          for (int64_t c = 0; c < channels; ++c) {
            const T rstd = T(1) / std::sqrt(squares[c] / n + static_cast<T>(eps));
            scale[c] = w ? w[c] * rstd : rstd;
            zeros[c] = old_mean[c] * keep + mean[c] * take;  // staged: stored as a run below
            squares[c] = old_var[c] * keep + (squares[c] / std::max(n - T(1), T(0))) * take;
          }
          store_run(*isa, l.outputs[1].dtype, l.outputs[1].data, 0, channels, zeros);
          store_run(*isa, l.outputs[2].dtype, l.outputs[2].data, 0, channels, squares);
          for (int64_t c = 0; c < channels; ++c) zeros[c] = 0;
          normalise_channels<T>(*isa, x, l.outputs[0], mean, scale, shift ? shift : zeros, rest);
        });
      },
      [axes, dtype, shape = b.shape(b.operand(0))](const int64_t* dims) {
        const Dims sizes = shape.get(dims);
        return 8 * padded(sizes[1]) + std::max(channel_rows_workspace(sizes, dtype), reduce_workspace(sizes, axes));
      });
}

}  // namespace eager
