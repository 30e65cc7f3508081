// SPDX-License-Identifier: Apache-2.0
// Compiles the functions of OPT for every engine. Also defines the ModelFamily of OPT, which describes its
// models to programs.
#include "tessera/nn/opt.hpp"

#include "tessera/recipes/model_functions.hpp"
#include "tessera/train/opt_family.hpp"

namespace tessera {
inline namespace v0 {

TESSERA_LIBRARY_FUNCTIONS(Opt)

AnyModel any_model(OptOptions const& sizes) { return any_model(Opt(sizes)); }

ModelFamily opt_family() {
  return {.name = "opt",
          .title = "OPT",
          .keys = {{.name = "layers", .max = 1000},
                   {.name = "heads", .max = 65536, .divides = "channels"},
                   {.name = "channels", .max = 65536},
                   {.name = "hidden",
                    .max = 1 << 20,
                    .standard = [](ModelSpec const& before) { return 4.0 * before.number("channels"); }}},
          .models = {{"opt-125m", "facebook/opt-125m", {12, 12, 768, 3072}, 2048, 50272},
                     {"opt-350m",
                      "facebook/opt-350m",
                      {24, 16, 1024, 4096},
                      2048,
                      50272,
                      331196416,
                      "normalises after its blocks (do_layer_norm_before false) and projects its embeddings "
                      "(word_embed_proj_dim 512)"},
                     {"opt-1.3b", "facebook/opt-1.3b", {24, 32, 2048, 8192}, 2048, 50272}},
          .make =
              [](ModelSpec const& sizes) {
                return any_model(
                    OptOptions{.layers = sizes.integer("layers"),
                               .heads = sizes.integer("heads"),
                               .channels = sizes.integer("channels"),
                               .hidden = sizes.integer("hidden"),
                               .positions = sizes.positions,
                               .vocabulary = sizes.vocabulary,
                               .padding_token = static_cast<std::int64_t>(sizes.number("padding", 1.0))});
              },
          .weights = opt_weight_names(),
          .hub = {.model_type = "opt",
                  .architectures = {"OPTForCausalLM", "OPTModel"},
                  .numbers = {{"num_hidden_layers", "layers"},
                              {"num_attention_heads", "heads"},
                              {"hidden_size", "channels"},
                              {"ffn_dim", "hidden"},
                              {"max_position_embeddings", "positions", 2048},
                              {"vocab_size", "vocabulary", 50272}},
                  .features = {{"activation_function", {"relu"}},
                               {"do_layer_norm_before", {true}},
                               {"_remove_final_layer_norm", {false}},
                               {"enable_bias", {true}},
                               {"layer_norm_elementwise_affine", {true}},
                               {"tie_word_embeddings", {true}}},
                  .unapplied = {{"dropout", 0.0, 0.1},
                                {"attention_dropout", 0.0, 0.0},
                                {"layerdrop", 0.0, 0.0},
                                {"init_std", 0.02, 0.02}},
                  .read =
                      [](HubConfig& config, ModelSpec& sizes) {
                        config.support("word_embed_proj_dim", {sizes.integer("channels"), HubValue()});
                        sizes.set("padding", config.token("pad_token_id", sizes.vocabulary, 1.0));
                      },
                  .write =
                      [](ModelSpec const& sizes, HubEntries& entries) {
                        entries.push_back({"word_embed_proj_dim", sizes.integer("channels")});
                        entries.push_back({"pad_token_id", 1});
                      }}};
}

}  // namespace v0
}  // namespace tessera
