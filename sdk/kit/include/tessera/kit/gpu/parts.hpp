// SPDX-License-Identifier: Apache-2.0
// Pieces of a graph that are no single kernel, but that one program of the SIMT family computes: a fusion pass proposes such
// pieces, a backend's claim says whether it takes them.
#pragma once

#include <optional>
#include <vector>

#include "tessera/kit/lower.hpp"

namespace tessera::kit {

// Rows of a tensor and sums across them in one sweep, as in the backward pass of a norm: `rows` computes outputs of the
// tensor's shape, or views of it that leave the rows as they are (or one number for each row), `columns` outputs of one row's
// shape. `links` are numbers of a row that `rows` computes and `columns` reads, such as its mean; they are outputs of the one
// and inputs of the other.
struct SweepPieces {
  Piece rows, columns;
  std::vector<sdk::Value> links;
};
// Nothing: the piece does not look like that. Whether there are programs for the parts is another question.
std::optional<SweepPieces> sweep_of(const Piece& piece);

// The parts of a piece that share nothing but inputs, in the order of their first outputs.
std::vector<Piece> parts_of(const Piece& piece);

}  // namespace tessera::kit
