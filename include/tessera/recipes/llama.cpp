// SPDX-License-Identifier: Apache-2.0
// Compiles the functions of LLaMA for every engine. Also defines the ModelFamily of LLaMA, which describes
// its models to programs.
#include "tessera/nn/llama.hpp"

#include <string>

#include "tessera/recipes/model_functions.hpp"
#include "tessera/train/llama_family.hpp"

namespace tessera {
inline namespace v0 {

TESSERA_LIBRARY_FUNCTIONS(Llama)

namespace {

/// Reads the settings of rotary embeddings from a config.json to `sizes`. Newer files have an object
/// rope_parameters. Older files have rope_theta and rope_scaling. If rope_scaling is not empty, it has
/// precedence over rope_parameters.
void read_rotary(HubConfig& config, ModelSpec& sizes) {
  bool const older = config.has("rope_scaling") && config.find("rope_scaling")->json != "{}";
  std::string const in = older ? "rope_scaling" : "rope_parameters";
  for (std::string const& theta : {in + ".rope_theta", std::string("rope_theta")})
    if (config.has(theta)) {
      sizes.set("rope_theta", config.real(theta));
      break;
    }
  config.support("partial_rotary_factor", {1.0, HubValue()});
  if (!config.has(in)) return;
  if (config.find(in)->json.front() != '{') config.fail(in, *config.find(in), "an object");
  config.support(in + ".partial_rotary_factor", {1.0, HubValue()});
  std::string const type = config.has(in + ".rope_type") ? in + ".rope_type" : in + ".type";
  if (!config.has(type) || *config.find(type) == HubValue("default")) return;
  if (*config.find(type) != HubValue("llama3")) return config.support(type, {"default", "llama3"});
  sizes.set("rope_factor", config.real(in + ".factor"));
  sizes.set("rope_low_frequency", config.real(in + ".low_freq_factor"));
  sizes.set("rope_high_frequency", config.real(in + ".high_freq_factor"));
  std::string const top_level = "original_max_position_embeddings";  // has precedence over the key in `in`
  std::string const original = config.has(top_level) ? top_level : in + "." + top_level;
  sizes.set("rope_positions",
            config.has(original) ? config.integer(original) : static_cast<double>(sizes.positions));
}

void read(HubConfig& config, ModelSpec& sizes) {
  if (config.has("num_key_value_heads")) sizes.set("kv_heads", config.integer("num_key_value_heads"));
  sizes.set("tied", config.flag("tie_word_embeddings", false));
  config.support("head_dim", {sizes.integer("channels") / sizes.integer("heads"), HubValue()});
  sizes.set("padding", config.token("pad_token_id", sizes.vocabulary, -1.0));
  read_rotary(config, sizes);
}

void write(ModelSpec const& sizes, HubEntries& entries) {
  HubValue const theta(sizes.number("rope_theta"));
  entries.push_back({"num_key_value_heads", sizes.integer("kv_heads")});
  entries.push_back({"tie_word_embeddings", sizes.integer("tied") == 1});
  entries.push_back({"rope_theta", theta});
  entries.push_back({"rope_parameters.rope_theta", theta});
  entries.push_back({"rope_parameters.rope_type", "default"});
}

LlamaOptions options_of(ModelSpec const& sizes) {
  return {.layers = sizes.integer("layers"),
          .heads = sizes.integer("heads"),
          .key_heads = sizes.integer("kv_heads"),
          .channels = sizes.integer("channels"),
          .hidden = sizes.integer("hidden"),
          .positions = sizes.positions,
          .vocabulary = sizes.vocabulary,
          .tied = sizes.integer("tied") == 1,
          .padding_token = static_cast<std::int64_t>(sizes.number("padding", -1.0)),
          .norm_epsilon = sizes.number("norm_epsilon"),
          .rotary_theta = sizes.number("rope_theta"),
          .rotary_factor = sizes.number("rope_factor", 0.0),
          .rotary_low_frequency = sizes.number("rope_low_frequency", 1.0),
          .rotary_high_frequency = sizes.number("rope_high_frequency", 4.0),
          .rotary_positions = sizes.number("rope_positions", 8192.0)};
}

}  // namespace

AnyModel any_model(LlamaOptions const& sizes) { return any_model(Llama(sizes)); }

ModelFamily llama_family() {
  auto const always = [](double value) { return [value](ModelSpec const&) { return value; }; };
  auto const named = [](char const* name, char const* hub, double layers, double heads, double kv_heads,
                        double channels, double hidden) {
    return NamedModel{name, hub, {layers, heads, channels, hidden, kv_heads, 0, 10000, 1e-5}, 4096, 32000,
                      0,    {}};
  };
  return {
      .name = "llama",
      .title = "LLaMA",
      .keys = {{.name = "layers", .max = 1000},
               {.name = "heads", .max = 65536, .divides = "channels"},
               {.name = "channels", .max = 65536},
               {.name = "hidden", .max = 1 << 20},
               {.name = "kv_heads",
                .max = 65536,
                .divides = "heads",
                .standard = [](ModelSpec const& before) { return before.number("heads"); },
                .member = "key_heads"},
               {.name = "tied", .max = 1, .standard = always(0.0), .min = 0},
               {.name = "rope_theta",
                .max = 1000000000000,
                .real = true,
                .standard = always(10000.0),
                .member = "rotary_theta"},
               {.name = "norm_epsilon", .max = 1, .real = true, .standard = always(1e-5)}},
      .models = {named("llama-2-7b", "meta-llama/Llama-2-7b-hf", 32, 32, 32, 4096, 11008),
                 named("llama-2-13b", "meta-llama/Llama-2-13b-hf", 40, 40, 40, 5120, 13824),
                 named("llama-2-70b", "meta-llama/Llama-2-70b-hf", 80, 64, 8, 8192, 28672)},
      .make = [](ModelSpec const& sizes) { return any_model(options_of(sizes)); },
      .weights = llama_weight_names(),
      .hub = {
          .model_type = "llama",
          .architectures = {"LlamaForCausalLM", "LlamaModel"},
          .numbers = {{"num_hidden_layers", "layers"},
                      {"num_attention_heads", "heads"},
                      {"hidden_size", "channels"},
                      {"intermediate_size", "hidden"},
                      {"max_position_embeddings", "positions", 2048},
                      {"vocab_size", "vocabulary", 32000},
                      {"rms_norm_eps", "norm_epsilon", 1e-6}},
          .features = {{"hidden_act", {"silu", "swish"}}, {"attention_bias", {false}}, {"mlp_bias", {false}}},
          .unapplied = {{"attention_dropout", 0.0, 0.0}, {"initializer_range", 0.02, 0.02}},
          .read = &read,
          .write = &write}};
}

}  // namespace v0
}  // namespace tessera
