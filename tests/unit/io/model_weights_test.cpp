// SPDX-License-Identifier: Apache-2.0
// Tests files of model weights, mostly weights of GPT-2. Covers reading, errors with their messages, and that
// a save is either complete or leaves the old file unchanged.
#include "tessera/io/model_weights.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/core/dtype.hpp"
#include "tessera/io/adapter.hpp"
#include "tessera/nn/gpt2.hpp"
#include "tessera/nn/lora.hpp"
#include "tessera/nn/opt.hpp"

#include "support/file_support.hpp"

using namespace tessera;
using file_support::TemporaryFolder;

namespace {

/// A tensor that a test writes to a file. Element i of the tensor is value(i).
struct Stored {
  std::string name;
  std::vector<std::int64_t> shape;
  std::string type = "F32";
  std::function<double(std::int64_t)> value = [](std::int64_t) { return 0.0; };
};

std::int64_t elements(std::vector<std::int64_t> const& shape) {
  std::int64_t product = 1;
  for (std::int64_t const extent : shape) product *= extent;
  return product;
}

/// Returns the value of element `element` of tensor number `tensor`. Every number format of the library
/// represents this value exactly.
double exact(std::size_t tensor, std::int64_t element) {
  return static_cast<double>((static_cast<std::int64_t>(tensor) * 7 + element) % 33 - 16) / 16.0;
}

Gpt2Options const sizes{.layers = 2, .heads = 3, .channels = 12, .positions = 7, .vocabulary = 11};
std::vector<UnitSpec> units_of(Gpt2Options const& model) { return Gpt2(model).units({1, 1}); }

/// Opens a file of weights whose tensors have the names that are usual in files of GPT-2.
ModelWeights open_weights(std::filesystem::path const& path, std::vector<UnitSpec> const& units) {
  return ModelWeights::open(path, units, gpt2_weight_names());
}

/// Returns every parameter of `units` as a tensor for a file. Each tensor has the name of the parameter with
/// `prefix` before it.
std::vector<Stored> tensors_of(std::vector<UnitSpec> const& units, std::string const& prefix = "",
                               std::string const& type = "F32") {
  std::vector<Stored> tensors;
  for (UnitSpec const& unit : units)
    for (ParameterSpec const& parameter : unit.parameters)
      tensors.push_back({prefix + parameter.name, extents_of(parameter.shape), type,
                         [index = tensors.size()](std::int64_t i) { return exact(index, i); }});
  return tensors;
}
std::vector<Stored> tensors_of(Gpt2Options const& model, std::string const& prefix = "",
                               std::string const& type = "F32") {
  return tensors_of(units_of(model), prefix, type);
}

template <class T>
void put(std::string& data, double value) {
  data += file_support::bytes_of(std::bit_cast<std::conditional_t<sizeof(T) == 2, std::uint16_t, T>>(
      static_cast<T>(static_cast<std::conditional_t<sizeof(T) == 2, float, T>>(value))));
}

/// Writes a safetensors file without the library's writer, so that the tensors can have any type. Returns the
/// path of the file.
std::filesystem::path write_file_of(std::filesystem::path const& path, std::vector<Stored> const& tensors) {
  std::string data, header = "{";
  for (Stored const& tensor : tensors) {
    std::size_t const begin = data.size();
    for (std::int64_t i = 0; i < elements(tensor.shape); ++i) {
      double const value = tensor.value(i);
      if (tensor.type == "F64") put<double>(data, value);
      if (tensor.type == "F32") put<float>(data, value);
      if (tensor.type == "F16") put<half>(data, value);
      if (tensor.type == "BF16") put<bfloat16>(data, value);
      if (tensor.type == "BOOL") data += '\1';
      if (tensor.type == "I64") data += std::string(8, '\0');
    }
    header += (header.size() > 1 ? "," : "") + std::string("\"") + tensor.name + "\":{\"dtype\":\"" +
              tensor.type + "\",\"shape\":" + tessera::detail::shape_text(tensor.shape) +
              ",\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(data.size()) + "]}";
  }
  header += "}";
  return file_support::write(
      path, file_support::bytes_of(static_cast<std::uint64_t>(header.size())) + header + data);
}

/// Checks that a file of weights has the values of tensors_of(). Reads each tensor once from its start and
/// once from its middle.
void check_values(std::filesystem::path const& path, std::vector<UnitSpec> const& units = units_of(sizes)) {
  // `source` remains valid after the temporary ModelWeights object is destroyed.
  ParameterSource const source = open_weights(path, units).source();
  std::size_t index = 0;
  for (std::size_t unit = 0; unit < units.size(); ++unit)
    for (std::size_t parameter = 0; parameter < units[unit].parameters.size(); ++parameter, ++index) {
      auto const count = static_cast<std::size_t>(units[unit].parameters[parameter].shape.elements());
      std::vector<float> values(count);
      source(static_cast<int>(unit), static_cast<int>(parameter), 0, values);
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < count; ++i)
        wrong += values[i] != static_cast<float>(exact(index, static_cast<std::int64_t>(i)));
      CHECK_MESSAGE(wrong == 0, units[unit].parameters[parameter].name);
      float middle = 99.0f;
      source(static_cast<int>(unit), static_cast<int>(parameter), static_cast<std::int64_t>(count / 2),
             {&middle, 1});
      CHECK(middle == values[count / 2]);
    }
}

}  // namespace

TEST_CASE("adapters are merged to the same bits, whole or in pieces") {
  LoraOptions lora{.rank = 3, .alpha = 5.0, .targets = "all-linear"};
  // Gpt2 stores its matrices as (in, out). Opt stores them as (out, in).
  for (std::vector<UnitSpec> const& units :
       {adapted(
            Gpt2({.layers = 1, .heads = 2, .channels = 8, .positions = 4, .vocabulary = 11}).units({1, 1}),
            lora, {1, 1}),
        adapted(Opt({.layers = 1, .heads = 2, .channels = 8, .positions = 4, .vocabulary = 11}).units({1, 1}),
                lora, {1, 1})}) {
    // The key is the name of a parameter. The map sorts its keys, and collect() returns parameters in the
    // same order.
    std::map<std::string, ParameterSpec const*> specs;
    for (UnitSpec const& unit : units)
      for (ParameterSpec const& parameter : unit.parameters) specs[parameter.name] = &parameter;
    auto const merged = [&](std::size_t piece) {
      std::map<std::string, std::vector<float>> all;
      ParameterSink const sink =
          merging(units, [&](ParameterSpec const& parameter, std::span<float const> values) {
            all[parameter.name].insert(all[parameter.name].end(), values.begin(), values.end());
          });
      float next = 0.1f;
      for (auto const& [name, spec] : specs) {
        std::vector<float> values(static_cast<std::size_t>(spec->shape.elements()));
        for (float& value : values) value = next = 3.7f * next * (1.0f - next);
        for (std::size_t at = 0; at < values.size(); at += piece)
          sink(*spec, std::span(values).subspan(at, std::min(piece, values.size() - at)));
      }
      return all;
    };
    auto const whole = merged(1 << 20);
    CHECK_FALSE(whole.empty());
    for (std::size_t const piece : {1, 5, 7, 64}) CHECK(merged(piece) == whole);
    for (auto const& [name, values] : whole)
      CHECK(static_cast<std::int64_t>(values.size()) == specs.at(name)->shape.elements());
  }
}

TEST_CASE("gpt2 weights are read from every float format") {
  TemporaryFolder const folder;
  for (char const* type : {"F32", "F16", "BF16", "F64"})
    check_values(write_file_of(folder / type, tensors_of(sizes, "", type)));
}

TEST_CASE("gpt2 weights take the prefix and pass over buffers and the tied head") {
  TemporaryFolder const folder;
  for (std::string const prefix : {"", "transformer."}) {
    auto tensors = tensors_of(sizes, prefix);
    for (std::string const layer : {"h.0", "h.1"}) {
      tensors.push_back({prefix + layer + ".attn.bias", {1, 1, 7, 7}, "BOOL"});
      tensors.push_back({prefix + layer + ".attn.masked_bias", {}});
    }
    Stored head = tensors[0];
    head.name = "lm_head.weight";
    tensors.push_back(head);
    check_values(write_file_of(folder / "model.safetensors", tensors));
  }
  check_values(folder.path());  // the argument is the folder; its file model.safetensors has the weights
}

TEST_CASE("weights of any model are read by its names, a head of its own among them") {
  TemporaryFolder const folder;
  std::vector<UnitSpec> units(2);
  units[0].parameters = {{"wte.weight", {5, 3}}, {"deep.scale", {3}}};
  units[1].parameters = {{"lm_head.weight", {5, 3}}, {"out.kernel", {3, 2}}};
  auto tensors = tensors_of(units);
  check_values(write_file_of(folder / "whole", tensors), units);
  tensors.pop_back();
  tensors.push_back({"out.bias", {2}});
  CHECK_ERROR(data, open_weights(write_file_of(folder / "other", tensors), units), "missing: out.kernel",
              "not in the model: out.bias");
}

TEST_CASE("a family's names say what else its files may hold") {
  TemporaryFolder const folder;
  std::vector<UnitSpec> units(2);
  units[0].parameters = {{"embed.weight", {5, 3}}, {"layers.0.scale", {3}}};
  units[1].parameters = {{"lm_head.weight", {5, 3}}};
  auto const with = [](std::vector<Stored> tensors, Stored const& more) {
    tensors.push_back(more);
    return tensors;
  };
  auto tensors = tensors_of(units, "model.");
  tensors.back().name = "lm_head.weight";  // the name of this tensor has no prefix
  WeightNames const names{.prefix = "model.",
                          .buffers = {"layers.*.rotary.inv_freq", "version"},
                          .layers = "layers.",
                          .extents = {{"channels", "embed.weight", 1}, {"vocabulary", "embed.weight", 0}}};
  auto const open = [&](std::vector<Stored> const& held, WeightNames const& of) {
    return ModelWeights::open(write_file_of(folder / "file", held), units, of);
  };
  CHECK_NOTHROW(open(with(tensors, {"model.layers.12.rotary.inv_freq", {2}}), names));
  CHECK_NOTHROW(open(with(tensors, {"model.version", {1}}), names));
  for (char const* other : {"model.layers..rotary.inv_freq", "model.layers.x.rotary.inv_freq",
                            "model.layers.1.rotary.inv_freq2", "model.layers.1", "model.versions"})
    CHECK_ERROR(data, open(with(tensors, {other, {2}}), names), "not in the model: ", other);
  CHECK_ERROR(data, open(with(tensors, {"model.layers.1.scale", {3}}), names),
              "the file holds layers=2,channels=3 and vocabulary 5, the model is layers=1,channels=3 and "
              "vocabulary 5; not in the model: model.layers.1.scale");
  CHECK_ERROR(data, open(tensors, {}), "does not fit the model: missing: embed.weight");

  // The model no longer has a separate output head, but the file contains one. If WeightNames::tied_to names
  // a tensor with the same values, the file is accepted.
  units[1].parameters.clear();
  tensors.back().value = tensors.front().value;
  WeightNames tied = names;
  tied.tied_to = "embed.weight";
  CHECK_NOTHROW(open(tensors, tied));
  CHECK_ERROR(data, open(tensors, names), "not in the model: lm_head.weight");
}

TEST_CASE("gpt2 weights refuse a head that is not tied") {
  TemporaryFolder const folder;
  auto tensors = tensors_of(sizes);
  Stored head = tensors[0];
  head.name = "lm_head.weight";
  head.value = [value = head.value](std::int64_t i) { return i == 5 ? 3.0 : value(i); };
  tensors.push_back(head);
  auto const path = write_file_of(folder / "head.safetensors", tensors);
  CHECK_ERROR(data, open_weights(path, units_of(sizes)), "head.safetensors", "lm_head.weight", "element 5",
              "tied");
  tensors.back().shape = {11, 13};
  write_file_of(path, tensors);
  CHECK_ERROR(data, open_weights(path, units_of(sizes)), "lm_head.weight", "[11, 13]", "[11, 12]");
}

TEST_CASE("gpt2 weights name every tensor that is missing or extra or of another shape") {
  TemporaryFolder const folder;
  auto tensors = tensors_of(sizes);
  std::map<std::string, std::size_t> at;
  for (std::size_t i = 0; i < tensors.size(); ++i) at[tensors[i].name] = i;
  tensors[at["h.0.ln_1.weight"]].name = "h.0.ln_9.weight";
  tensors[at["h.1.mlp.c_fc.weight"]].shape = {48, 12};
  tensors[at["ln_f.bias"]].shape = {13};
  tensors[at["h.1.attn.c_proj.bias"]].type = "I64";
  auto const path = write_file_of(folder / "wrong.safetensors", tensors);
  CHECK_ERROR(data, open_weights(path, units_of(sizes)), "wrong.safetensors", "missing: h.0.ln_1.weight [12]",
              "not in the model: h.0.ln_9.weight [12]",
              "h.1.mlp.c_fc.weight has shape [48, 12], the model needs [12, 48]",
              "ln_f.bias has shape [13], the model needs [12]", "h.1.attn.c_proj.bias is I64");
}

TEST_CASE("gpt2 weights of another model name both sizes") {
  TemporaryFolder const folder;
  auto const path = write_file_of(folder / "small.safetensors", tensors_of(sizes));
  Gpt2Options other = sizes;
  other.vocabulary = 256;
  CHECK_ERROR(data, open_weights(path, units_of(other)), "vocabulary 11", "vocabulary 256",
              "wte.weight has shape [11, 12], the model needs [256, 12]");
  other = sizes;
  other.positions = 1024;
  CHECK_ERROR(data, open_weights(path, units_of(other)), "positions=7", "positions=1024",
              "wpe.weight has shape [7, 12], the model needs [1024, 12]");
  other = sizes;
  other.layers = 24;
  CHECK_ERROR(data, open_weights(path, units_of(other)), "layers=2", "layers=24", "missing: h.2.ln_1.weight",
              "and 261 more");
}

TEST_CASE("gpt2 weights that are not finite are refused") {
  TemporaryFolder const folder;
  auto tensors = tensors_of(sizes);
  tensors[3].value = [](std::int64_t i) { return i == 2 ? std::numeric_limits<double>::quiet_NaN() : 0.5; };
  CHECK_ERROR(data, open_weights(write_file_of(folder / "nan.safetensors", tensors), units_of(sizes)),
              "nan.safetensors", tensors[3].name.c_str(), "element 2");
  tensors[3].type = "F64";
  tensors[3].value = [](std::int64_t i) { return i == 4 ? 1e300 : 0.5; };  // 1e300 exceeds the range of fp32
  CHECK_ERROR(data, open_weights(write_file_of(folder / "big.safetensors", tensors), units_of(sizes)),
              tensors[3].name.c_str(), "element 4");
}

TEST_CASE("doubles beyond the numbers of fp32 are refused and not read as infinite") {
  TemporaryFolder const folder;
  auto tensors = tensors_of(sizes, "", "F64");
  double const largest = static_cast<double>(std::numeric_limits<float>::max());
  tensors[3].value = [=](std::int64_t i) { return i == 1 ? -largest : 0.0; };
  CHECK_NOTHROW(open_weights(write_file_of(folder / "model", tensors), units_of(sizes)));
  tensors[3].value = [=](std::int64_t i) { return i == 1 ? -1e39 : 0.0; };
  CHECK_ERROR(data, open_weights(write_file_of(folder / "model", tensors), units_of(sizes)),
              "tensor " + tensors[3].name + " holds -1e+39 at element 1, which is outside the range of fp32");
}

TEST_CASE("gpt2 weights in parts are read through their index") {
  TemporaryFolder const folder;
  auto const tensors = tensors_of(sizes, "transformer.");
  std::vector<Stored> const first(tensors.begin(), tensors.begin() + 9),
      second(tensors.begin() + 9, tensors.end());
  write_file_of(folder / "model-00001-of-00002.safetensors", first);
  write_file_of(folder / "model-00002-of-00002.safetensors", second);
  auto const index = [&](std::function<std::string(std::size_t)> const& part, std::size_t count) {
    std::string text = R"({"metadata": {"total_size": 1}, "weight_map": {)";
    for (std::size_t i = 0; i < count; ++i)
      text += (i == 0 ? "\"" : ", \"") + tensors[i].name + "\": \"" + part(i) + "\"";
    return file_support::write(folder / "model.safetensors.index.json", text + "}}");
  };
  auto const right = [](std::size_t i) {
    return std::string(i < 9 ? "model-00001-of-00002.safetensors" : "model-00002-of-00002.safetensors");
  };
  auto const open = [&](std::filesystem::path const& path) { open_weights(path, units_of(sizes)); };
  check_values(index(right, tensors.size()));
  check_values(folder.path());
  CHECK_ERROR(data,
              open(index([](std::size_t) { return "model-00001-of-00002.safetensors"; }, tensors.size())),
              "model-00001-of-00002.safetensors", tensors[9].name.c_str());
  CHECK_ERROR(data, open(index([](std::size_t) { return "absent.safetensors"; }, 3)), "absent.safetensors");
  std::string const absolute = (folder / right(0)).string();
  for (std::string const& out :
       {std::string("../outside.safetensors"), std::string("sub/../../outside.safetensors"),
        std::string(".."), std::string(), absolute})
    CHECK_ERROR(data, open(index([&](std::size_t) { return out; }, 3)), "h.0.ln_1.weight",
                "a file in the folder of the index");
  CHECK_ERROR(data, open(index(right, tensors.size() - 1)), tensors.back().name.c_str(), "weight_map");

  // Some index files that the library transformers accepts must be accepted here too: the metadata contains
  // NaN, the weight files are in a subfolder, and one of these files has a tensor that is neither in
  // weight_map nor in the model.
  auto text = file_support::read(index(right, tensors.size()));
  text.replace(text.find("1}"), 1, "NaN, \"huge\": 1e999");
  check_values(file_support::write(folder / "model.safetensors.index.json", text));
  auto const below = [&](std::size_t i) { return "sub/" + right(i); };
  auto more = second;
  more.push_back({"h.0.attn.other", {3}});
  write_file_of(folder / below(0), first);
  write_file_of(folder / below(9), more);
  check_values(index(below, tensors.size()));
  CHECK(tessera::weights_files(index(below, tensors.size())).back() == folder / below(9));
  std::filesystem::remove_all(folder / "sub");

  // weights_files() returns the paths of all files that open() reads. A program compares its output path with
  // them, so that it never overwrites its input.
  auto const path = index(right, tensors.size());
  std::vector<std::filesystem::path> const files{path, folder / right(0), folder / right(9)};
  CHECK(tessera::weights_files(path) == files);
  CHECK(tessera::weights_files(folder / right(0)) == std::vector{folder / right(0)});
  CHECK(tessera::weights_files(folder / "absent.json") == std::vector{folder / "absent.json"});

  // Now both weight files contain tensor 8, but weight_map names only one of them for this tensor. Opening
  // must be refused.
  std::vector<Stored> third(tensors.begin() + 8, tensors.end());
  write_file_of(folder / right(9), third);
  std::string const part = right(9);
  CHECK_ERROR(data, open(path), part.c_str(), tensors[8].name.c_str(), "but weight_map names another file");
  for (char const* junk : {"", "{", "[]", "{}", "{\"weight_map\": 3}", "{\"weight_map\": {}}"})
    CHECK_ERROR(data, open(file_support::write(folder / "junk.json", junk)), "junk.json");
}

TEST_CASE("gpt2 weights that are no file or damaged are refused with their name") {
  TemporaryFolder const folder;
  auto const open = [&](std::filesystem::path const& path) { open_weights(path, units_of(sizes)); };
  CHECK_ERROR(data, open(folder / "absent.safetensors"), "absent.safetensors");
  CHECK_ERROR(data, open(folder.path()), "model.safetensors.index.json");
  std::filesystem::permissions(folder.path(),
                               // With these permissions, the files of the folder cannot be listed.
                               std::filesystem::perms(0600));
  auto const closed = file_support::thrown_as_nobody([&] { open(folder.path()); });
  std::filesystem::permissions(folder.path(), std::filesystem::perms(0755));
  CHECK(file_support::has(closed.text, "cannot list the folder (Permission denied)"));
  auto const whole = file_support::read(write_file_of(folder / "cut.safetensors", tensors_of(sizes)));
  for (std::size_t const size : {std::size_t{0}, std::size_t{7}, std::size_t{100}, whole.size() - 1})
    CHECK_ERROR(data, open(file_support::write(folder / "cut.safetensors", whole.substr(0, size))),
                "cut.safetensors");
}

TEST_CASE("gpt2 weights that were written read back to the bit") {
  TemporaryFolder const folder;
  auto const units = units_of(sizes);
  auto const path = folder / "saved.safetensors";
  auto const tensors = tensors_of(sizes);
  // The maps sort their keys, the names of parameters. collect() returns parameters in the same order.
  std::map<std::string, std::vector<float>> values;
  std::map<std::string, ParameterSpec const*> specs;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    for (std::int64_t e = 0; e < elements(tensors[i].shape); ++e)
      values[tensors[i].name].push_back(static_cast<float>(tensors[i].value(e)));
  for (UnitSpec const& unit : units)
    for (ParameterSpec const& parameter : unit.parameters) specs[parameter.name] = &parameter;
  {
    WeightsWriter writer(path, units);
    ParameterSink const sink = writer.sink();
    for (auto const& [name, held] : values) sink(*specs[name], held);
    CHECK_FALSE(std::filesystem::exists(path));
    writer.commit();
  }
  check_values(path);
  SafetensorsFile const file = SafetensorsFile::open(path);
  CHECK(file.find("lm_head.weight") == nullptr);
  CHECK(file.tensors().size() == values.size());
  CHECK(file.metadata().at("format") == "pt");

  std::string const before = file_support::read(path);
  {
    // This writer gets only one of the parameters, so its commit must fail.
    WeightsWriter writer(path, units);
    writer.sink()(*specs["h.0.attn.c_attn.bias"], values["h.0.attn.c_attn.bias"]);
    CHECK_ERROR(usage, writer.commit(), "saved.safetensors", "h.0.attn.c_attn.weight");
  }
  CHECK(file_support::read(path) == before);
  CHECK(folder.entries() == 1);
  CHECK_ERROR(failed, WeightsWriter(folder / "no" / "such" / "file", units), "does not exist");
}
