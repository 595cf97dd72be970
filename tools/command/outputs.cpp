// SPDX-License-Identifier: Apache-2.0
#include "outputs.hpp"

#include "literal.hpp"
#include "npz/elements.hpp"
#include "npz/npz.hpp"
#include "tessera/dtypes.hpp"
#include "text.hpp"

namespace tessera::command {

std::vector<embed::Tensor> on_host(std::vector<embed::Tensor> outputs) {
  for (embed::Tensor& t : outputs)
    if (t.desc().device != 0 || !(t.desc().flags & TSR_TENSOR_CONTIGUOUS)) t = t.copy_to(0);
  return outputs;
}

void write_outputs(const std::string& path, const Signature& signature, const std::vector<embed::Tensor>& outputs) {
  std::vector<npz::Array> arrays;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const tsr_tensor& t = outputs[i].desc();
    arrays.push_back(npz::from_elements(signature.outputs[i].name, t.dtype, {t.sizes, t.sizes + t.rank}, t.data));
  }
  npz::write(path, arrays);
}

std::string shape_text(const tsr_tensor& t) {
  std::string out = std::string(dtype_name(t.dtype)) + "[";
  for (uint32_t d = 0; d < t.rank; ++d) out += (d ? ", " : "") + std::to_string(t.sizes[d]);
  return out + "]";
}

std::string literals(const Signature& signature, const std::vector<embed::Tensor>& outputs) {
  std::string out;
  for (size_t i = 0; i < outputs.size(); ++i)
    out += name_text(signature.outputs[i].name) + " = " + literal(outputs[i].desc()) + "\n";
  return out;
}

}  // namespace tessera::command
