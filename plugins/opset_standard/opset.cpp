// SPDX-License-Identifier: Apache-2.0
#include "opset.hpp"

#include "records.hpp"  // generated from records/*.tops
#include "table.hpp"

namespace tessera::opset {

const tsr_opset* tessera_standard_opset() {
  static Table table;
  static const tsr_opset set = [] {
    for (auto add : {add_infer_shape,
                     add_infer_dynamic,
                     add_infer_index,
                     add_infer_reduce,
                     add_infer_elementwise,
                     add_infer_linalg,
                     add_infer_nn,
                     add_infer_control,
                     add_views,
                     add_decompose_reduce,
                     add_decompose_shape,
                     add_decompose_linalg,
                     add_decompose_adaptive_pool,
                     add_decompose_activation,
                     add_decompose_norm,
                     add_decompose_attention,
                     add_decompose_loss,
                     add_decompose_interpolate,
                     add_grad_elementwise,
                     add_grad_reduce,
                     add_grad_scan,
                     add_grad_shape,
                     add_grad_index,
                     add_grad_linalg,
                     add_grad_conv,
                     add_grad_pool,
                     add_grad_activation,
                     add_grad_norm,
                     add_grad_attention,
                     add_cost})
      add(table);
    add_default_costs(table, opset_records);
    tsr_opset s{};
    s.struct_size = sizeof s;
    s.prefix = "";
    s.files = opset_records;
    s.num_files = std::size(opset_records);
    s.file_stride = sizeof(tsr_record_file);
    s.impls = table.impls().data();
    s.num_impls = table.impls().size();
    s.impl_stride = sizeof(tsr_op_impl);
    return s;
  }();
  return &set;
}

}  // namespace tessera::opset
