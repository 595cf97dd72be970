// SPDX-License-Identifier: Apache-2.0
// One line per op: its factory, and what the factory is told. Control flow (cond, while_loop, scan) is the host's.
#include "registry.hpp"

#include <algorithm>
#include <array>

#include "attention.hpp"
#include "elementwise_ops.hpp"
#include "index_ops.hpp"
#include "loss.hpp"
#include "matmul.hpp"
#include "norm.hpp"
#include "random.hpp"
#include "reduce_ops.hpp"
#include "shape_ops.hpp"
#include "window_ops.hpp"

namespace eager {
namespace {

constexpr int arg(Op op) { return static_cast<int>(op); }
constexpr int arg(Reduce r) { return static_cast<int>(r); }

constexpr OpEntry kOps[] = {
    // elementwise_ops.cpp, cast.cpp
    {"abs", make_unary, arg(Op::Abs)},
    {"neg", make_unary, arg(Op::Neg)},
    {"sign", make_unary, arg(Op::Sign)},
    {"exp", make_unary, arg(Op::Exp)},
    {"exp2", make_unary, arg(Op::Exp2)},
    {"expm1", make_unary, arg(Op::Expm1)},
    {"log", make_unary, arg(Op::Log)},
    {"log2", make_unary, arg(Op::Log2)},
    {"log10", make_unary, arg(Op::Log10)},
    {"log1p", make_unary, arg(Op::Log1p)},
    {"sqrt", make_unary, arg(Op::Sqrt)},
    {"rsqrt", make_unary, arg(Op::Rsqrt)},
    {"cbrt", make_unary, arg(Op::Cbrt)},
    {"reciprocal", make_unary, arg(Op::Reciprocal)},
    {"sin", make_unary, arg(Op::Sin)},
    {"cos", make_unary, arg(Op::Cos)},
    {"tan", make_unary, arg(Op::Tan)},
    {"asin", make_unary, arg(Op::Asin)},
    {"acos", make_unary, arg(Op::Acos)},
    {"atan", make_unary, arg(Op::Atan)},
    {"sinh", make_unary, arg(Op::Sinh)},
    {"cosh", make_unary, arg(Op::Cosh)},
    {"tanh", make_unary, arg(Op::Tanh)},
    {"asinh", make_unary, arg(Op::Asinh)},
    {"acosh", make_unary, arg(Op::Acosh)},
    {"atanh", make_unary, arg(Op::Atanh)},
    {"erf", make_unary, arg(Op::Erf)},
    {"erfc", make_unary, arg(Op::Erfc)},
    {"erfinv", make_unary, arg(Op::Erfinv)},
    {"lgamma", make_unary, arg(Op::Lgamma)},
    {"digamma", make_unary, arg(Op::Digamma)},
    {"sigmoid", make_unary, arg(Op::Sigmoid)},
    {"floor", make_unary, arg(Op::Floor)},
    {"ceil", make_unary, arg(Op::Ceil)},
    {"round", make_unary, arg(Op::Round)},
    {"trunc", make_unary, arg(Op::Trunc)},
    {"is_nan", make_unary, arg(Op::IsNan)},
    {"is_inf", make_unary, arg(Op::IsInf)},
    {"is_finite", make_unary, arg(Op::IsFinite)},
    {"logical_not", make_unary, arg(Op::LogicalNot)},
    {"bitwise_not", make_unary, arg(Op::BitNot)},
    {"popcount", make_unary, arg(Op::Popcount)},
    {"conj", make_unary, arg(Op::Conj)},
    {"real", make_unary, arg(Op::Real)},
    {"imag", make_unary, arg(Op::Imag)},
    {"relu", make_unary, arg(Op::Relu)},
    {"leaky_relu", make_activation, arg(Op::LeakyRelu)},
    {"elu", make_activation, arg(Op::Elu)},
    {"selu", make_activation, arg(Op::Selu)},
    {"celu", make_activation, arg(Op::Celu)},
    {"gelu", make_activation, arg(Op::Gelu)},
    {"silu", make_activation, arg(Op::Silu)},
    {"mish", make_activation, arg(Op::Mish)},
    {"softplus", make_activation, arg(Op::Softplus)},
    {"hardsigmoid", make_activation, arg(Op::HardSigmoid)},
    {"hardswish", make_activation, arg(Op::HardSwish)},
    {"add", make_binary, arg(Op::Add)},
    {"sub", make_binary, arg(Op::Sub)},
    {"mul", make_binary, arg(Op::Mul)},
    {"div", make_binary, arg(Op::Div)},
    {"floor_div", make_binary, arg(Op::FloorDiv)},
    {"remainder", make_binary, arg(Op::Remainder)},
    {"fmod", make_binary, arg(Op::Fmod)},
    {"pow", make_binary, arg(Op::Pow)},
    {"atan2", make_binary, arg(Op::Atan2)},
    {"hypot", make_binary, arg(Op::Hypot)},
    {"copysign", make_binary, arg(Op::Copysign)},
    {"nextafter", make_binary, arg(Op::Nextafter)},
    {"maximum", make_binary, arg(Op::Maximum)},
    {"minimum", make_binary, arg(Op::Minimum)},
    {"fmax", make_binary, arg(Op::Fmax)},
    {"fmin", make_binary, arg(Op::Fmin)},
    {"bitwise_and", make_binary, arg(Op::BitAnd)},
    {"bitwise_or", make_binary, arg(Op::BitOr)},
    {"bitwise_xor", make_binary, arg(Op::BitXor)},
    {"shift_left", make_binary, arg(Op::Shl)},
    {"shift_right", make_binary, arg(Op::Shr)},
    {"logical_and", make_binary, arg(Op::LogicalAnd)},
    {"logical_or", make_binary, arg(Op::LogicalOr)},
    {"logical_xor", make_binary, arg(Op::LogicalXor)},
    {"complex", make_binary, arg(Op::MakeComplex)},
    {"eq", make_binary, arg(Op::Eq)},
    {"ne", make_binary, arg(Op::Ne)},
    {"lt", make_binary, arg(Op::Lt)},
    {"le", make_binary, arg(Op::Le)},
    {"gt", make_binary, arg(Op::Gt)},
    {"ge", make_binary, arg(Op::Ge)},
    {"select", make_select, 0},
    {"clamp", make_clamp, 0},
    {"cast", make_cast, 0},
    {"bitcast", make_bitcast, 0},

    // reduce_ops.cpp
    {"reduce_sum", make_reduce, arg(Reduce::Sum)},
    {"reduce_prod", make_reduce, arg(Reduce::Prod)},
    {"reduce_max", make_reduce, arg(Reduce::Max)},
    {"reduce_min", make_reduce, arg(Reduce::Min)},
    {"reduce_any", make_reduce, arg(Reduce::Max)},
    {"reduce_all", make_reduce, arg(Reduce::Min)},
    {"mean", make_mean, 0},
    {"variance", make_variance, 0},
    {"logsumexp", make_logsumexp, 0},
    {"norm", make_norm, 0},
    {"sum_to", make_sum_to, 0},

    // scan.cpp
    {"argmax", make_arg_reduce, 0},
    {"argmin", make_arg_reduce, 1},
    {"cumsum", make_cumulative, 0},
    {"cumprod", make_cumulative, 1},
    {"cummax", make_cumulative_extreme, 0},
    {"cummin", make_cumulative_extreme, 1},

    // create.cpp, shape.cpp, slice_pad.cpp
    {"constant", make_constant, 0},
    {"full", make_full, 0},
    {"iota", make_iota, 0},
    {"dim_value", make_dim_value, 0},
    {"shape_of", make_shape_of, 0},
    {"one_hot", make_one_hot, 0},
    {"reshape", make_reshape, 0},
    {"expand_dims", make_reshape, 0},
    {"squeeze", make_reshape, 0},
    {"transpose", make_transpose, 0},
    {"broadcast_to", make_broadcast_to, 0},
    {"as_strided", make_as_strided, 0},
    {"flip", make_flip, 0},
    {"diagonal", make_diagonal, 0},
    {"concat", make_concat, 0},
    {"stack", make_stack, 0},
    {"split", make_split, 0},
    {"tile", make_tile, 0},
    {"roll", make_roll, 0},
    {"tril", make_triangle, 0},
    {"triu", make_triangle, 1},
    {"slice", make_slice, 0},
    {"pad", make_pad, 0},
    {"dynamic_slice", make_dynamic_slice, 0},
    {"dynamic_update_slice", make_dynamic_update_slice, 0},

    // matmul.cpp, softmax.cpp, norm.cpp
    {"dot_general", make_dot_general, 0},
    {"matmul", make_matmul, 0},
    {"linear", make_linear, 0},
    {"softmax", make_softmax, 0},
    {"log_softmax", make_softmax, 1},
    {"layer_norm", make_layer_norm, 0},
    {"rms_norm", make_layer_norm, 1},
    {"group_norm", make_group_norm, 0},
    {"batch_norm", make_batch_norm, 0},
    {"batch_norm_training", make_batch_norm_training, 0},
    {"attention", make_attention, 0},

    // gather_scatter.cpp, sort.cpp, unbacked.cpp
    {"gather", make_gather, 0},
    {"embedding", make_gather, 1},
    {"take_along_axis", make_take_along_axis, 0},
    {"gather_nd", make_gather_nd, 0},
    {"scatter", make_scatter, 0},
    {"scatter_nd", make_scatter_nd, 0},
    {"sort", make_sort, 0},
    {"topk", make_topk, 0},
    {"searchsorted", make_searchsorted, 0},
    {"nonzero", make_nonzero, 0},
    {"masked_select", make_masked_select, 0},
    {"unique", make_unique, 0},
    {"dynamic_reshape", make_dynamic_reshape, 0},
    {"dynamic_broadcast_to", make_dynamic_broadcast_to, 0},

    // conv.cpp, pool.cpp, resize.cpp
    {"conv", make_conv, 0},
    {"conv_transpose", make_conv_transpose, 0},
    {"max_pool", make_max_pool, 0},
    {"avg_pool", make_avg_pool, 0},
    {"adaptive_avg_pool", make_adaptive_pool, 0},
    {"adaptive_max_pool", make_adaptive_pool, 1},
    {"interpolate", make_interpolate, 0},

    // random.cpp, loss.cpp
    {"random_bits", make_random_bits, 0},
    {"random_uniform", make_random_uniform, 0},
    {"random_normal", make_random_normal, 0},
    {"random_int", make_random_int, 0},
    {"dropout", make_dropout, 0},
    {"cross_entropy", make_cross_entropy, 0},
    {"mse_loss", make_mse_loss, 0},
};

}  // namespace

const OpEntry* find_op(std::string_view op) {
  static const auto sorted = [] {
    std::array<const OpEntry*, std::size(kOps)> a;
    for (size_t i = 0; i < a.size(); ++i) a[i] = &kOps[i];
    std::sort(a.begin(), a.end(), [](auto* x, auto* y) { return std::string_view(x->op) < y->op; });
    return a;
  }();
  const auto it = std::lower_bound(sorted.begin(), sorted.end(), op, [](auto* e, std::string_view s) { return e->op < s; });
  return it != sorted.end() && (*it)->op == op ? *it : nullptr;
}

}  // namespace eager
