// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: arbitrary bytes are read as a config.json and as the index of a model's weights. They
// must give values that can be written and read again, or throw Error(data) with one line of text.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/io/model_folder.hpp"
#include "tessera/io/model_weights.hpp"
#include "tessera/io/safetensors.hpp"

#include "fuzz/support.hpp"

namespace ts = tessera;

namespace {

template <class Use>
void refuses_or(Use&& use) {
  try {
    use();
  } catch (ts::Error const& error) {
    fuzz::check(error);
  }
}

std::vector<ts::UnitSpec> const& units() {
  static std::vector<ts::UnitSpec> const all{
      {.name = "one", .parameters = {{"a", {2, 2}, ts::Init::zeros()}, {"b", {2}, ts::Init::zeros()}}}};
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* input, std::size_t size) {
  static fuzz::Folder const folder;
  std::string const text(fuzz::text_of(input, size));
  refuses_or([&] {
    ts::HubConfig config = ts::parse_hub_config(text, "config.json");
    for (char const* key : {"n_layer", "n_embd", "vocab_size", "rms_norm_eps", "tie_word_embeddings",
                            "bos_token_id", "architectures", "rope_scaling.factor"}) {
      refuses_or([&] { (void)config.real(key); });
      refuses_or([&] { (void)config.integer(key); });
      refuses_or([&] { (void)config.flag(key, false); });
      refuses_or([&] { (void)config.token(key, 100, 1.0); });
      config.support(key, {ts::HubValue(true)});
      config.record_unapplied(key, 0.0, 0.1);
    }
    (void)config.not_applied();
    std::string const written = ts::hub_config_text(config.source, {{"n_layer", 2}, {"dtype", "float32"}});
    ts::HubConfig const again = ts::parse_hub_config(written, "config.json");
    if (again.values.at("n_layer") != ts::HubValue(2)) std::abort();
  });

  // Writes one valid weight file, to which the index can refer.
  static bool const once = [] {
    ts::WeightsWriter writer(folder.path() / "part.safetensors", units());
    float const values[4] = {1, 2, 3, 4};
    for (ts::ParameterSpec const& parameter : units().front().parameters)
      writer.sink()(parameter, std::span(values).first(static_cast<std::size_t>(parameter.shape.elements())));
    writer.commit();
    return true;
  }();
  (void)once;
  folder.write("model.safetensors.index.json", text);
  refuses_or([&] { (void)ts::weights_files(folder.path()); });
  refuses_or([&] {
    float values[4] = {};
    ts::ModelWeights::open(folder.path(), units()).source()(0, 0, 0, values);
    if (values[3] != 4) std::abort();
  });
  return 0;
}
