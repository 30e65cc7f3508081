// SPDX-License-Identifier: Apache-2.0
// Compiles the functions of GPT-2 for every engine. Also defines the ModelFamily of GPT-2, which describes
// its models to programs.
#include "tessera/nn/gpt2.hpp"

#include "tessera/recipes/model_functions.hpp"
#include "tessera/train/gpt2_family.hpp"

namespace tessera {
inline namespace v0 {

TESSERA_LIBRARY_FUNCTIONS(Gpt2)

AnyModel any_model(Gpt2Options const& sizes) { return any_model(Gpt2(sizes)); }

ModelFamily gpt2_family() {
  return {.name = "gpt2",
          .title = "GPT-2",
          .keys = {{.name = "layers", .max = 1000},
                   {.name = "heads", .max = 65536, .divides = "channels"},
                   {.name = "channels", .max = 65536}},
          .models = {{"tiny", "", {4, 4, 128}},
                     {"gpt2", "openai-community/gpt2", {12, 12, 768}, 1024, 50257},
                     {"gpt2-medium", "openai-community/gpt2-medium", {24, 16, 1024}, 1024, 50257},
                     {"gpt2-large", "openai-community/gpt2-large", {36, 20, 1280}, 1024, 50257},
                     {"gpt2-xl", "openai-community/gpt2-xl", {48, 25, 1600}, 1024, 50257}},
          .make =
              [](ModelSpec const& sizes) {
                return any_model(Gpt2Options{.layers = sizes.integer("layers"),
                                             .heads = sizes.integer("heads"),
                                             .channels = sizes.integer("channels"),
                                             .positions = sizes.positions,
                                             .vocabulary = sizes.vocabulary});
              },
          .weights = gpt2_weight_names(),
          .hub = {.model_type = "gpt2",
                  .architectures = {"GPT2LMHeadModel", "GPT2Model"},
                  .numbers = {{"n_layer", "layers", 0.0, "num_hidden_layers"},
                              {"n_head", "heads", 0.0, "num_attention_heads"},
                              {"n_embd", "channels", 0.0, "hidden_size"},
                              {"n_positions", "positions", 1024, "max_position_embeddings"},
                              {"vocab_size", "vocabulary", 50257}},
                  .features = {{"activation_function",
                                {"gelu_new", "gelu_pytorch_tanh", "gelu_fast", "gelu_accurate"}},
                               {"layer_norm_epsilon", {1e-5}},
                               {"scale_attn_weights", {true}},
                               {"scale_attn_by_inverse_layer_idx", {false}},
                               {"reorder_and_upcast_attn", {false}},
                               {"add_cross_attention", {false}},
                               {"tie_word_embeddings", {true}}},
                  .unapplied = {{"resid_pdrop", 0.0, 0.1},
                                {"embd_pdrop", 0.0, 0.1},
                                {"attn_pdrop", 0.0, 0.1},
                                {"initializer_range", 0.02, 0.02}},
                  .read = [](HubConfig& config, ModelSpec& sizes) {
                    config.support("n_inner", {HubValue(), 4 * sizes.integer("channels")});
                  }}};
}

}  // namespace v0
}  // namespace tessera
