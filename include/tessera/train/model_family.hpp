// SPDX-License-Identifier: Apache-2.0
// Defines the families of models that programs know by name. A family lists the numbers in which its models
// differ and its named models, and makes models.
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

/// The sizes of one model of a family, before it is built.
struct ModelSpec {
  struct Number {
    std::string key{};  ///< "layers"
    double value = 0.0;
  };
  /// One for each key of the family, in that order, then further numbers from a config.json.
  std::vector<Number> numbers{};
  std::int64_t positions = 0;   ///< 0: open; the builder of the model chooses it
  std::int64_t vocabulary = 0;  ///< likewise

  /// Throws Error(usage) if the key is missing.
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

/// A number in which models of a family differ. All models also have positions and vocabulary.
struct ModelKey {
  std::string name = {};     ///< the key in layers=12
  std::int64_t most = 0;     ///< the largest allowed value
  bool real = false;         ///< any number above 0, not only whole ones
  std::string divides = {};  ///< another key whose number is a multiple of this one
  /// The default, computed from the numbers of earlier keys; empty: the number is required.
  std::function<double(ModelSpec const& before)> standard = {};
  std::int64_t least = 1;   ///< the smallest allowed whole number
  std::string member = {};  ///< the field of the model's options, if its name differs
};

/// A named model of a family.
struct NamedModel {
  std::string name = {};             ///< "gpt2-medium"
  std::string hub = {};              ///< repository on the Hugging Face hub; empty: none
  std::vector<double> numbers = {};  ///< values of the family's keys, in the same order
  std::int64_t positions = 0;        ///< 0: not fixed, see ModelSpec
  std::int64_t vocabulary = 0;
  std::int64_t parameters = 0;  ///< of a model that cannot be made
  std::string lacking = {};     ///< why it cannot be made: features that its family lacks here; empty: it can
};

/// Maps a family's models to a config.json of Hugging Face, and back.
struct HubFormat {
  std::string model_type = {};                  ///< "gpt2"; empty: the family has no such file
  std::vector<std::string> architectures = {};  ///< "GPT2LMHeadModel", ...; the first is written

  /// Maps a key of the file to a key of the family, to "positions" or to "vocabulary". The file must have the
  /// key, unless `absent` gives the default of transformers. `other` is a second name that transformers
  /// reads.
  struct Number {
    std::string key = {}, number = {};
    double absent = 0.0;
    std::string other = {};
  };
  std::vector<Number> numbers = {};
  /// Another key that defines the model. A file may omit it or give one of these values. The first one is
  /// written.
  struct Feature {
    std::string key = {};
    std::vector<HubValue> supported = {};
  };
  std::vector<Feature> features = {};
  /// A key that affects only training, such as dropout: its value here, and its default if a file omits it.
  struct Unapplied {
    std::string key = {};
    double here = 0.0, absent = 0.0;
  };
  std::vector<Unapplied> unapplied = {};
  /// Reads and writes what the lists do not cover. Before `read`, keys that no list has hold their
  /// `standard`.
  std::function<void(HubConfig& config, ModelSpec& sizes)> read = {};
  std::function<void(ModelSpec const& sizes, HubEntries& entries)> write = {};
};

struct ModelFamily {
  std::string name = {};   ///< the name in gpt2:layers=2,heads=2,channels=64
  std::string title = {};  ///< the name in messages: "GPT-2"
  std::vector<ModelKey> keys = {};
  std::vector<NamedModel> models = {};
  /// Makes a model from complete sizes. Throws Error(config) for invalid sizes.
  std::function<AnyModel(ModelSpec const& sizes)> make = {};
  WeightNames weights = {};  ///< the names that files may use besides the parameters' own
  HubFormat hub = {};

  ModelSpec spec(NamedModel const& named) const {
    ModelSpec spec{{}, named.positions, named.vocabulary};
    for (std::size_t at = 0; at < keys.size(); ++at)
      spec.numbers.push_back({keys[at].name, named.numbers.at(at)});
    return spec;
  }
  /// Reads the sizes from a config.json. Throws Error(data) for invalid values, and Error(unsupported) with
  /// every feature that the family lacks. `config` keeps what is not applied.
  ModelSpec spec(HubConfig& config) const;
  /// The entries of a model's config.json: only the sizes, to update the file that they came from, or
  /// everything.
  HubEntries hub_entries(ModelSpec const& sizes, bool sizes_alone) const;
};

/// Returns all families, the library's own first. They live as long as the program and do not change. Any
/// thread may call it.
std::vector<ModelFamily const*> model_families();

/// Adds a family. From then on, its models are in every list of the programs that link it. Any thread may
/// call it, also before main. Throws Error(usage) for a name that is taken and for numbers that do not match
/// its keys. Returns true, so that a variable of a source file can hold the result.
bool register_model_family(ModelFamily family);

}  // namespace v0
}  // namespace tessera
