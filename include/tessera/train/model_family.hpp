// SPDX-License-Identifier: Apache-2.0
// The families of models that programs know by name. A family is one entry of a list: what its models differ
// in, which of them have names, and how one is made.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/io/hub_config.hpp"
#include "tessera/io/weight_names.hpp"
#include "tessera/train/any_model.hpp"

namespace tessera {
inline namespace v0 {

/// What makes one model of a family, before it is built.
struct ModelSpec {
  struct Number {
    std::string key{};  ///< "layers"
    double value = 0.0;
  };
  /// One for each key of the family, in that order, and what else a config.json said.
  std::vector<Number> numbers{};
  std::int64_t positions = 0;   ///< 0: open; who builds the model settles it
  std::int64_t vocabulary = 0;  ///< likewise

  /// Throws Error(usage) for a key that it lacks.
  double number(std::string_view key) const {
    for (Number const& one : numbers)
      if (one.key == key) return one.value;
    throw Error(ErrorKind::usage, "a model's sizes lack " + std::string(key));
  }
  std::int64_t whole(std::string_view key) const { return static_cast<std::int64_t>(number(key)); }
  double number(std::string_view key, double absent) const {
    for (Number const& one : numbers)
      if (one.key == key) return one.value;
    return absent;
  }
  void set(std::string_view key, double value) {
    for (Number& one : numbers)
      if (one.key == key) {
        one.value = value;
        return;
      }
    numbers.push_back({std::string(key), value});
  }
};

/// A number that models of a family differ in, beside positions and vocabulary, which all have.
struct ModelKey {
  std::string name = {};     ///< the key in layers=12
  std::int64_t most = 0;     ///< the largest allowed value
  bool real = false;         ///< not a whole number, but any above 0
  std::string divides = {};  ///< another key whose number is a multiple of this one
  /// What it is where it is not given, by the numbers of the keys before; empty: it has to be given.
  std::function<double(ModelSpec const& before)> standard = {};
  std::int64_t least = 1;   ///< the smallest allowed whole number
  std::string member = {};  ///< the field of the model's options, if its name differs
};

/// One of a family that has a name.
struct NamedModel {
  std::string name = {};             ///< "gpt2-medium"
  std::string hub = {};              ///< repository on the Hugging Face hub; empty: none
  std::vector<double> numbers = {};  ///< values of the family's keys, in the same order
  std::int64_t positions = 0;        ///< 0: not fixed, see ModelSpec
  std::int64_t vocabulary = 0;
  std::int64_t parameters = 0;  ///< of one that cannot be made
  std::string lacking = {};     ///< why it cannot: what it has and its family lacks here; empty: it can
};

/// How the models of a family stand in a config.json of Hugging Face.
struct HubFormat {
  std::string model_type = {};                  ///< "gpt2"; empty: they do not
  std::vector<std::string> architectures = {};  ///< "GPT2LMHeadModel", ...; the first is written

  /// A key of the file for a key of the family, for "positions" or for "vocabulary". A file must have it,
  /// unless `absent` gives the default of transformers. `other` is a second name that transformers reads.
  struct Number {
    std::string key = {}, number = {};
    double absent = 0.0;
    std::string other = {};
  };
  std::vector<Number> numbers = {};
  /// What else decides over the model: a file may leave it out or give one of these, the first is written.
  struct Feature {
    std::string key = {};
    std::vector<HubValue> supported = {};
  };
  std::vector<Feature> features = {};
  /// What decides over its training alone, as it is here and where a file leaves it out: dropouts.
  struct Unapplied {
    std::string key = {};
    double here = 0.0, absent = 0.0;
  };
  std::vector<Unapplied> unapplied = {};
  /// What the lists do not say. Numbers that no list has are the key's standard before it.
  std::function<void(HubConfig& config, ModelSpec& sizes)> read = {};
  std::function<void(ModelSpec const& sizes, HubEntries& entries)> write = {};
};

struct ModelFamily {
  std::string name = {};   ///< the name in gpt2:layers=2,heads=2,channels=64
  std::string title = {};  ///< the name in messages: "GPT-2"
  std::vector<ModelKey> keys = {};
  std::vector<NamedModel> models = {};
  /// A model of settled sizes; throws Error(config) for those that cannot be.
  std::function<AnyModel(ModelSpec const& sizes)> make = {};
  WeightNames weights = {};  ///< what files may hold beside the names of the parameters
  HubFormat hub = {};

  ModelSpec spec(NamedModel const& named) const {
    ModelSpec spec{{}, named.positions, named.vocabulary};
    for (std::size_t at = 0; at < keys.size(); ++at)
      spec.numbers.push_back({keys[at].name, named.numbers.at(at)});
    return spec;
  }
  /// The sizes that a config.json gives. Throws Error(data) for values that cannot be, Error(unsupported)
  /// with every feature that the family lacks; what is not applied stays in `config`.
  ModelSpec spec(HubConfig& config) const;
  /// A model's config.json: its sizes alone, to go into the file that it came from, or all that there is.
  HubEntries hub_entries(ModelSpec const& sizes, bool sizes_alone) const;
};

/// Returns all families, the library's own first. They live as long as the program and do not change. Any
/// thread may call it.
std::vector<ModelFamily const*> model_families();

/// Adds a family; from then on its models are in every list of the programs that are linked with it. Any
/// thread may call it, before main too. Throws Error(usage) for a name that is taken and for numbers that do
/// not fit its keys. The result is true, so that a variable of a source can hold it.
bool register_model_family(ModelFamily family);

}  // namespace v0
}  // namespace tessera
