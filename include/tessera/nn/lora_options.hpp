// SPDX-License-Identifier: Apache-2.0
// Defines the options of low-rank adapters. The code that creates and computes adapters is in nn/lora.hpp.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace tessera {
inline namespace v0 {

/// The options of LoRA (Hu and others, 2021, arXiv:2106.09685). A linear layer y = x w becomes y = x w +
/// scale (x a^T) b^T, where only a and b are trained. There are no adapters if `rank` is 0 and `layers` is
/// null.
struct LoraOptions {
  int rank = 0;
  double alpha = 0.0;            ///< the scale is alpha / rank
  bool rank_stabilized = false;  ///< the scale is alpha / sqrt(rank) instead
  /// The layers that get an adapter, as a list separated by commas. As in PEFT, each entry is the end of a
  /// layer's name ("c_attn,mlp.c_proj"). "all-linear" means every linear layer of the blocks.
  std::string targets = {};

  /// The rank and alpha of one layer's adapter. `name` is the full name of the layer ("h.0.attn.c_attn").
  struct Layer {
    std::string name{};
    int rank = 0;
    double alpha = 0.0;
  };
  /// If not null, exactly the layers in this list get adapters, and `rank`, `alpha` and `targets` are
  /// ignored. The code that reads adapter files sets this list.
  std::shared_ptr<std::vector<Layer> const> layers = {};

  explicit operator bool() const { return rank != 0 || layers != nullptr; }
};

}  // namespace v0
}  // namespace tessera
