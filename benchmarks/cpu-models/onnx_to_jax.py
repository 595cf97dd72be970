# SPDX-License-Identifier: Apache-2.0
"""An ONNX model as a function of JAX, for the ops and types that the models of this benchmark are exported to (opset 20).

Every op stands in OPS. An op, an attribute or a type that is not translated is an error that names the node: nothing is left out in silence.
i64 becomes i32, since JAX has no i64 unless all of its types are widened: what these models compute of it are indices and masks. tests/onnx/onnx_to_jax.py runs the cases of the ONNX suite.
"""
import math

import jax
import numpy as np
import onnx
from jax import lax
from jax import numpy as jnp
from onnx import numpy_helper

TYPES = {"bool", "bfloat16", "float32", "int32"}


class Unsupported(Exception):
    pass


def narrow(x):
    """The array without i64; a value that i32 cannot hold is an error, and so is a type that JAX would narrow in silence."""
    if x.dtype == np.int64:
        if x.size and (x.min() < -(2**31) or x.max() >= 2**31):
            raise Unsupported("an i64 value that i32 cannot hold")
        return x.astype(np.int32)
    if x.dtype.name not in TYPES:
        raise Unsupported(f"type {x.dtype.name}; known are int64, {', '.join(sorted(TYPES))}")
    return x


def known(x, what):
    """The integers of an input that has to be an initializer: JAX needs them while it traces."""
    if not isinstance(x, np.ndarray):
        raise Unsupported(f"{what} that the model computes, where an initializer is needed")
    return [int(v) for v in x.reshape(-1)]


def only(a, **wanted):
    """Attributes of which one value is translated."""
    for name, value in wanted.items():
        given = a.pop(name, value)
        if given != value:
            raise Unsupported(f"{name} = {given}; translated is {value}")


# An op is a function of its attributes and its inputs, an omitted input being None. It pops the attributes that it obeys; what
# it leaves is an error.


def plain(function):
    return lambda a, *xs: function(*xs)


def div(x, y):
    return lax.div(*jnp.broadcast_arrays(x, y)) if jnp.issubdtype(x.dtype, jnp.integer) else x / y


def cast(a, x):
    only(a, saturate=1)
    name = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(a.pop("to"))).name
    name = "int32" if name == "int64" else name
    if name not in TYPES:
        raise Unsupported(f"a cast to {name}")
    return x.astype(jnp.dtype(name))


def hard_sigmoid(x, alpha, beta):
    return jnp.clip(alpha * x + beta, 0, 1)


def layer_normalization(a, x, scale, bias=None):
    only(a, stash_type=1)
    axes = tuple(range(a.pop("axis", -1) % x.ndim, x.ndim))
    wide = x.astype(jnp.float32)
    mean = wide.mean(axes, keepdims=True)
    centred = wide - mean
    inverse = lax.rsqrt((centred * centred).mean(axes, keepdims=True) + a.pop("epsilon", 1e-5))
    y = (centred * inverse).astype(x.dtype) * scale
    return y if bias is None else y + bias, mean, inverse


def gemm(a, x, y, z=None):
    alpha, beta = a.pop("alpha", 1.0), a.pop("beta", 1.0)
    r = alpha * jnp.matmul(x.T if a.pop("transA", 0) else x, y.T if a.pop("transB", 0) else y)
    return r if z is None else r + beta * z


def windows(a, rank):
    """Strides, pads and dilations as XLA takes them."""
    only(a, auto_pad=b"NOTSET")
    pads = a.pop("pads", [0] * 2 * rank)
    return a.pop("strides", [1] * rank), list(zip(pads[:rank], pads[rank:])), a.pop("dilations", [1] * rank)


def conv(a, x, w, b=None):
    rank = x.ndim - 2
    only(a, kernel_shape=list(w.shape[2:]))
    strides, pads, dilations = windows(a, rank)
    y = lax.conv_general_dilated(x, w, strides, pads, rhs_dilation=dilations, feature_group_count=a.pop("group", 1))
    return y if b is None else y + b.reshape(-1, *[1] * rank)


def max_pool(a, x):
    only(a, ceil_mode=0, storage_order=0)
    strides, pads, dilations = windows(a, x.ndim - 2)
    shape = (1, 1, *a.pop("kernel_shape"))
    return lax.reduce_window(x, np.array(-np.inf, x.dtype), lax.max, shape, (1, 1, *strides), [(0, 0), (0, 0), *pads], window_dilation=(1, 1, *dilations))


def reduction(function):
    def reduce(a, x, axes=None):
        axes = None if axes is None else tuple(known(axes, "axes"))
        if not axes and a.pop("noop_with_empty_axes", 0):
            raise Unsupported("noop_with_empty_axes without axes")
        a.pop("noop_with_empty_axes", 0)
        return function(x, axes or None, keepdims=bool(a.pop("keepdims", 1)))

    return reduce


def reduce_l2(x, axes, keepdims):
    return jnp.sqrt(jnp.sum(x * x, axes, keepdims=keepdims))


def reshape(a, x, shape):
    sizes, zeros = known(shape, "a shape"), a.pop("allowzero", 0)
    return jnp.reshape(x, [x.shape[i] if n == 0 and not zeros else n for i, n in enumerate(sizes)])


def expand(x, shape):
    return jnp.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(known(shape, "a shape"))))


def squeeze(x, axes=None):
    return jnp.squeeze(x, None if axes is None else tuple(known(axes, "axes")))


def unsqueeze(x, axes):
    return jnp.expand_dims(x, tuple(known(axes, "axes")))


def split(a, x, sizes=None):
    axis = a.pop("axis", 0)
    if sizes is None:
        part = math.ceil(x.shape[axis] / a.pop("num_outputs"))
        ends = list(range(part, x.shape[axis], part))
    else:
        ends = np.cumsum(known(sizes, "sizes"))[:-1]
    return tuple(jnp.split(x, ends, axis))


def gather_nd(a, x, indices):
    only(a, batch_dims=0)
    return x[tuple(jnp.moveaxis(indices, -1, 0))]


OPS = {
    "Add": plain(jnp.add),
    "And": plain(jnp.logical_and),
    "Cast": cast,
    "Clip": plain(jnp.clip),
    "Concat": lambda a, *xs: jnp.concatenate(xs, a.pop("axis")),
    "Conv": conv,
    "Div": plain(div),
    "Expand": plain(expand),
    "Gather": lambda a, x, i: jnp.take(x, i, a.pop("axis", 0)),
    "GatherElements": lambda a, x, i: jnp.take_along_axis(x, i, a.pop("axis", 0)),
    "GatherND": gather_nd,
    "Gelu": lambda a, x: jax.nn.gelu(x, approximate=a.pop("approximate", b"none") == b"tanh"),
    "Gemm": gemm,
    "HardSigmoid": lambda a, x: hard_sigmoid(x, a.pop("alpha", 0.2), a.pop("beta", 0.5)),
    "HardSwish": plain(lambda x: x * hard_sigmoid(x, 1 / 6, 0.5)),
    "IsNaN": plain(jnp.isnan),
    "LayerNormalization": layer_normalization,
    "MatMul": plain(jnp.matmul),
    "MaxPool": max_pool,
    "Mul": plain(jnp.multiply),
    "Pow": plain(lambda x, y: jnp.power(x, y).astype(x.dtype)),
    "ReduceL2": reduction(reduce_l2),
    "ReduceMean": reduction(jnp.mean),
    "ReduceSum": reduction(jnp.sum),
    "Relu": plain(jax.nn.relu),
    "Reshape": reshape,
    "Softmax": lambda a, x: jax.nn.softmax(x, a.pop("axis", -1)),
    "Split": split,
    "Squeeze": plain(squeeze),
    "Tanh": plain(jnp.tanh),
    "Transpose": lambda a, x: jnp.transpose(x, a.pop("perm", None)),
    "Unsqueeze": plain(unsqueeze),
    "Where": plain(jnp.where),
}


def apply(node, values):
    """Adds the results of the node to the values."""
    if node.domain not in ("", "ai.onnx") or node.op_type not in OPS:
        raise Unsupported("this op is not translated")
    attributes = {x.name: onnx.helper.get_attribute_value(x) for x in node.attribute}
    inputs = [values[i] for i in node.input]
    floats = {x.dtype.name for x in inputs if x is not None and jnp.issubdtype(x.dtype, jnp.floating)}
    if len(floats) > 1 and node.op_type != "Pow":  # JAX would promote, ONNX does not
        raise Unsupported(f"inputs of types {' and '.join(sorted(floats))}")
    results = OPS[node.op_type](attributes, *inputs)
    if attributes:
        raise Unsupported(f"attribute {', '.join(attributes)}")
    results = results if isinstance(results, tuple) else (results,)
    if len(results) < len(node.output):
        raise Unsupported(f"{len(node.output)} outputs; translated are {len(results)}")
    values.update((name, x) for name, x in zip(node.output, results) if name)


def translate(model):
    """The model's outputs, a list, as a function of a dict of its inputs, for jax.jit.

    Initializers become constants of the function, not arguments, as the other engines take them too: XLA then rearranges filters and transposes
    matrices while it compiles and not in every call, which halves the time of ResNet-50 and takes some percent off that of GPT-2. It costs compile
    time and memory: GPT-2, whose constants are 500 MB, compiles some five times as long as with arguments.
    """
    version = max(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))
    if version < 18:  # where axes of reductions became inputs
        raise Unsupported(f"opset {version}; translated are those from 18 on")
    graph = model.graph
    constants = {"": None}
    for t in graph.initializer:
        try:
            constants[t.name] = narrow(numpy_helper.to_array(t))
        except Unsupported as e:
            raise Unsupported(f"initializer '{t.name}': {e}") from None

    def function(inputs):
        values = {**constants, **inputs}
        for node in graph.node:
            try:
                apply(node, values)
            except Unsupported as e:
                raise Unsupported(f"{'.'.join(filter(None, [node.domain, node.op_type]))}, node '{node.name}': {e}") from None
        return [values[o.name] for o in graph.output]

    return function
