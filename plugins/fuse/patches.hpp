// SPDX-License-Identifier: Apache-2.0
// Convolutions of images, whose few channels no matrix unit is filled with, in other words.
#pragma once

#include "groups.hpp"

namespace tessera::passes {

// A convolution whose windows lie side by side as a product of patches and weights: its result with the channels last,
// [N, rows, columns, O]. No value: it is another convolution. Nothing is replaced.
sdk::Value cut_patches(sdk::Graph g, const sdk::Node& conv);
// A convolution of stride 2 as one of stride 1 over squares of 2 x 2 pixels: four times the channels, filled up with zeros, a
// quarter of the pixels, half the taps each way. The weights must be a constant. No node: it is another convolution.
sdk::Node space_to_depth(sdk::Graph g, const sdk::Node& conv);

}  // namespace tessera::passes
