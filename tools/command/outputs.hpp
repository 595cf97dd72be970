// SPDX-License-Identifier: Apache-2.0
// The outputs of one call: on the host, in files, as text.
#pragma once

#include <string>
#include <vector>

#include "command.hpp"
#include "signature.hpp"

namespace tessera::command {

// Dense copies on the host of what is not that already.
std::vector<embed::Tensor> on_host(std::vector<embed::Tensor> outputs);
// One array per output under its name, as numpy.savez writes them. Host tensors.
void write_outputs(const std::string& path, const Signature& signature, const std::vector<embed::Tensor>& outputs);
std::string shape_text(const tsr_tensor& t);  // "f32[2, 8]"
// "name = dense<...>" per output.
std::string literals(const Signature& signature, const std::vector<embed::Tensor>& outputs);

}  // namespace tessera::command
