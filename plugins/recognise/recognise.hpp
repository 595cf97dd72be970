// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/plugin.hpp>

namespace tessera::passes {

// Puts composites back together that exporters took apart: gelu, silu, layer and RMS normalisation, attention. The rules are
// rules.cpp, one per line. Every rewrite is logged (TESSERA_LOGS=passes) and may change last bits of the result. Later passes
// may assume: nothing; they find composites where the model had them.
bool recognise(sdk::Graph g);

// Gives attention the heads of keys and values that were repeated for it, once each, and sums its gradient over a group itself:
// heads.cpp. It runs at the end of recognise, and may change last bits of gradients. What is then unused is left for dce.
bool group_heads(sdk::Graph g);

// Computes products and convolutions of dequantised tensors on their integers, in matmul_integer and conv_integer:
// quantised.cpp has the rules. It stands before constants are folded, for a dequantised weight is a constant of floats then.
// Every rewrite is logged and may change last bits of the result. Later passes may assume: nothing.
bool recognise_quantised(sdk::Graph g);

// Picks from a table of 256 results where elementwise work between two tensors of bytes takes more than one division or
// function. It stands before constant_fold, which computes the tables, and changes no bit. Later passes may assume: nothing.
bool tabulate_bytes(sdk::Graph g);

}  // namespace tessera::passes
