// SPDX-License-Identifier: Apache-2.0
// Which adapters of low rank a model gets, apart from the code that makes and computes them.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace tessera {
inline namespace v0 {

/// LoRA (Hu and others, 2021, arXiv:2106.09685): y = x w + scale (x a^T) b^T beside linear weights, of which
/// a and b alone are trained. With no rank and no layers there are none.
struct LoraOptions {
  int rank = 0;
  double alpha = 0.0;            ///< the scale is alpha / rank
  bool rank_stabilized = false;  ///< alpha / sqrt(rank) instead
  /// The layers that get one, as PEFT names them but between commas: the ends of their names
  /// ("c_attn,mlp.c_proj"), or "all-linear", which means every linear layer of the blocks.
  std::string targets = {};

  /// One layer by its whole name ("h.0.attn.c_attn"), with numbers of its own.
  struct Layer {
    std::string name{};
    int rank = 0;
    double alpha = 0.0;
  };
  /// These and no others, instead of rank, alpha and targets: those that an adapter's file holds.
  std::shared_ptr<std::vector<Layer> const> layers = {};

  explicit operator bool() const { return rank != 0 || layers != nullptr; }
};

}  // namespace v0
}  // namespace tessera
