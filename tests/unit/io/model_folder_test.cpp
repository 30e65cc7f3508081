// SPDX-License-Identifier: Apache-2.0
// Tests how the library reads and writes config.json, the description of a model in its folder. Covers the
// values, the errors with their messages, and that unknown fields are kept.
#include "tessera/io/model_folder.hpp"

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/nn/gpt2.hpp"

#include "support/file_support.hpp"

using namespace tessera;
using file_support::TemporaryFolder;

namespace {

std::string refusal(std::function<void()> const& work, ErrorKind kind = ErrorKind::data) {
  try {
    work();
  } catch (Error const& error) {
    CHECK(error.kind() == kind);
    return error.what();
  }
  return "no error";
}

HubConfig parsed(std::string const& text) { return parse_hub_config(text, "c.json"); }
std::string not_parsed(std::string const& text) {
  return refusal([&] { (void)parsed(text); });
}

}  // namespace

TEST_CASE("config.json: values by key, those of an object within it behind a point") {
  HubConfig const config = parsed(
      R"({"a": 12, "b": 1e-05, "c": null, "d": "gelu", "e": true, "f": [1, 2], "g": {"h": 8.0, "i": {"j": 1}}})");
  CHECK(config.integer("a") == 12.0);
  CHECK(config.real("b") == 1e-5);
  CHECK((config.find("c") && !config.has("c") && !config.has("x") && config.has("f")));
  CHECK(*config.find("d") == HubValue("gelu"));
  CHECK(config.flag("e", false));
  CHECK(config.flag("c", true));
  CHECK(config.find("f")->json == "[1,2]");
  CHECK(config.integer("g.h") == 8.0);
  CHECK(config.has("g"));
  CHECK(parsed(R"({"a": "\ud800", "b\udc00": "\ud83d\ude00"})").find("a")->json == "\"\xef\xbf\xbd\"");
  CHECK(HubValue(50257) == *parsed(R"({"a": 50257})").find("a"));
  CHECK(HubValue(1e-5) == *parsed(R"({"a": 0.00001})").find("a"));
}

TEST_CASE("config.json: numbers that cannot be are refused with file, key and value") {
  HubConfig const config = parsed(
      R"({"zero": 0, "part": 2.5, "minus": -3, "text": "12", "huge": 1e30, "null": null, "list": [12], "true": true})");
  for (std::string const key : {"zero", "part", "minus", "text", "huge", "null", "list", "true"}) {
    CAPTURE(key);
    CHECK(refusal([&] { (void)config.integer(key); }) ==
          "c.json: " + key + " is " + config.find(key)->json +
              "; a whole number from 1 to 2147483647 is needed");
  }
  CHECK(refusal([&] { (void)config.integer("n_layer"); }) ==
        "c.json: lacks n_layer, a whole number from 1 to 2147483647");
  CHECK(refusal([&] { (void)config.real("minus"); }) == "c.json: minus is -3; a number above 0 is needed");
  CHECK(refusal([&] { (void)config.flag("text", false); }) ==
        "c.json: text is \"12\"; true or false is needed");
}

TEST_CASE("config.json: a token is null or of the vocabulary, from its end too") {
  HubConfig const config = parsed(R"({"five": 5, "last": -1, "first": -10, "none": null, "beyond": 10,
                                      "before": -11, "part": 1.5, "text": "5"})");
  CHECK(config.token("five", 10, 1.0) == 5.0);
  // -1 means the last token of the vocabulary, as in padding_idx of torch.nn.Embedding.
  CHECK(config.token("last", 10, 1.0) == 9.0);
  CHECK(config.token("first", 10, 1.0) == 0.0);
  CHECK(config.token("none", 10, 1.0) == -1.0);
  CHECK(config.token("absent", 10, 1.0) == 1.0);
  for (std::string const key : {"beyond", "before", "part", "text"})
    CHECK(refusal([&] { (void)config.token(key, 10, 1.0); }) ==
          "c.json: " + key + " is " + config.find(key)->json +
              "; null or a token of the vocabulary is needed");
}

TEST_CASE("config.json: what is no settings file is refused") {
  CHECK(not_parsed("").find("c.json: is not valid JSON: ") == 0);
  CHECK(not_parsed("{\"a\": 1").find("c.json: is not valid JSON: ") == 0);
  CHECK(not_parsed("{\"a\": 1} x").find("c.json: is not valid JSON: ") == 0);
  CHECK(not_parsed("{\"a\": \"\xff\"}").find("c.json: is not valid JSON: ") == 0);
  CHECK(not_parsed("{\"a\": 1e999}").find("c.json: is not valid JSON: ") == 0);
  CHECK(not_parsed("[1]") == "c.json: is not a JSON object; name the folder of a model");
  CHECK(not_parsed(R"({"a": 1, "b": {"a": 2}, "a": 3})") == "c.json: has the key a twice; keep one of them");
  CHECK(not_parsed(R"({"b": {"a": 2, "a": 2}})") == "c.json: has the key a twice; keep one of them");
  for (std::string const open : {"[", "{\"a\":"}) {
    std::string deep = "{\"a\": ";
    for (int i = 0; i < 100000; ++i) deep += open;
    CHECK(not_parsed(deep) == "c.json: is nested too deeply for a configuration");
  }
}

TEST_CASE("config.json: folders without one, and files that are none, are refused") {
  TemporaryFolder const folder;
  std::string const name = folder.path().string();
  auto const reading = [&](std::filesystem::path const& path) {
    return refusal([&] { (void)read_hub_config(path); });
  };
  CHECK(reading(folder.path()) == name + ": the folder holds no config.json; name the folder of a model");
  CHECK(reading(folder / "none") == name + "/none: no such folder; check the path");
  std::filesystem::create_directories(folder / "config.json");
  CHECK(reading(folder.path()).find(name + "/config.json: is a folder") == 0);
  std::filesystem::remove(folder / "config.json");
  file_support::write(folder / "config.json", std::string((1 << 20) + 1, ' '));
  CHECK(reading(folder.path()) ==
        name + "/config.json: holds 1048577 bytes, too many for a configuration; name the folder of a model");
}

TEST_CASE("config.json: features that are lacking are named together") {
  HubConfig config = parsed(R"({"act": "relu", "flag": true, "eps": 0.00001, "quant": {"bits": 4}})");
  config.support("act", {"gelu_new", "gelu"});
  config.support("flag", {false});
  config.support("eps", {1e-5});
  config.support("absent", {"x"});
  config.support("quant", {HubValue()});
  config.record_unapplied("pdrop", 0.0, 0.1);
  config.record_unapplied("flag", 0.0, 0.0);
  CHECK(config.not_applied() == "pdrop 0.1");
  CHECK(refusal([&] { config.refuse_unsupported("GPT-2"); }, ErrorKind::unsupported) ==
        "c.json: needs features that GPT-2 does not support: act \"relu\" instead of \"gelu_new\", flag true "
        "instead of "
        "false, "
        "quant {\"bits\":4} instead of null; choose a model without them");
  parsed("{}").refuse_unsupported("GPT-2");
}

TEST_CASE("config.json: written values replace those of the file, the others stay") {
  std::string const source = R"({"b": [1, {"c": {}}], "n_layer": 1, "rope": {"x": 1}, "pdrop": 0.1})";
  std::string const text = hub_config_text(
      source, {{"n_layer", 100000}, {"rope.theta", 1e4}, {"kind", "gpt2"}, {"new.key", true}});
  HubConfig const config = parsed(text);
  CHECK(config.find("b")->json == R"([1,{"c":{}}])");
  CHECK(text.find("\"n_layer\": 100000,") != std::string::npos);
  CHECK(config.real("pdrop") == 0.1);
  CHECK(config.real("rope.theta") == 1e4);
  CHECK(config.integer("rope.x") == 1.0);
  CHECK(*config.find("kind") == HubValue("gpt2"));
  CHECK(config.flag("new.key", false));
}

TEST_CASE("a model's folder appears with its commit, or not at all") {
  TemporaryFolder const folder;
  std::vector<UnitSpec> const units =
      Gpt2({.layers = 1, .heads = 1, .channels = 2, .positions = 3, .vocabulary = 5}).units({1, 1});
  auto const fill = [&](ModelFolderWriter& writer) {
    std::vector<ParameterSpec> all;
    for (UnitSpec const& unit : units) all.insert(all.end(), unit.parameters.begin(), unit.parameters.end());
    std::sort(all.begin(), all.end(), [](auto const& a, auto const& b) { return a.name < b.name; });
    for (ParameterSpec const& parameter : all)
      writer.sink()(parameter,
                    std::vector<float>(static_cast<std::size_t>(parameter.shape.elements()), 1.0f));
  };
  ModelFolderWriter::check(folder / "new");
  CHECK(folder.entries() == 0);
  { ModelFolderWriter const abandoned(folder / "new", units, "{}"); }
  CHECK(folder.entries() == 0);
  for (int time = 0; time < 2; ++time) {  // the second writer must replace the folder of the first writer
    ModelFolderWriter writer(folder / "new", units, "{\"a\": 1}\n");
    fill(writer);
    writer.commit();
    ModelFolderWriter::check(folder / "new");
  }
  CHECK(file_support::read(folder / "new" / "config.json") == "{\"a\": 1}\n");
  (void)ModelWeights::open(folder / "new", units, gpt2_weight_names());
  CHECK(std::distance(std::filesystem::directory_iterator(folder / "new"), {}) == 2);

  file_support::write(folder / "parts/model.safetensors.index.json", "{}");
  CHECK(refusal([&] { ModelFolderWriter::check(folder / "parts"); }, ErrorKind::failed)
            .find("holds model.safetensors.index.json, which are not the weights to write") !=
        std::string::npos);
}
