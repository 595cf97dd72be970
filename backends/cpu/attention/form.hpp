// SPDX-License-Identifier: Apache-2.0
// Groups that this backend computes as attention whose scores are modified where they are: a product, what is made of its
// results element by element, softmax over keys and a second product; or the op `attention` with what its mask is made of.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "attention/tables.hpp"
#include "product.hpp"
#include "tessera/kit/lower.hpp"
#include "tessera/plugin.hpp"

namespace cpu {

struct AttentionForm {
  // The op, or else the two products, of single dimensions [*batch, query, depth], [*batch, key, depth] and [*batch, key,
  // value].
  tessera::sdk::Node whole, scores, results;
  ProductAxes of_scores,
      of_results;  // of `queries`, `keys` and `values`: inputs of the region, before heads were repeated and keys transposed
  tessera::sdk::Value queries, keys, values;
  Blind blind = Blind::kZero;
  // From the first product's results to what softmax takes, or from nothing to the mask. No nodes: there is nothing in between.
  tessera::kit::Piece piece;
  std::vector<uint32_t> operand_of;  // of the fused node: the piece's inputs, behind the scores where they are one
  std::vector<tsr_dim> shape;        // of the scores as the piece has them: [*batch, query, key]

  explicit AttentionForm(const tessera::sdk::Node& n)
      : whole{n.g, TSR_NONE}, scores(whole), results(whole), piece{tessera::sdk::Graph(n.g), {}, {}, {}} {}
  bool has_scores() const { return !whole; }  // the piece's first input
};

// Does the node look like one: is it a `fused` node with an `attention` or two products?
bool is_attention_group(const tessera::sdk::Node& n);
// Null, and why: cpu does not compute the group so.
std::optional<AttentionForm> attention_form(const tessera::sdk::Node& fused, std::string* why);

}  // namespace cpu
