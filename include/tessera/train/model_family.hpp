// SPDX-License-Identifier: Apache-2.0
// Defines families of models, such as GPT-2, that programs know by name. A family has a list of the sizes in
// which its models differ, such as `layers`, and a list of models with names, such as gpt2-medium. It also
// makes models.
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
  /// One number for each key of the family, in the order of the keys, then further numbers from a
  /// config.json.
  std::vector<Number> numbers{};
  std::int64_t positions = 0;   ///< 0: not set; the code that makes the model chooses it
  std::int64_t vocabulary = 0;  ///< 0: not set, as for positions

  /// Returns the number of a key. Throws Error(usage) if the key is missing.
  double number(std::string_view key) const {
    for (Number const& one : numbers)
      if (one.key == key) return one.value;
    throw Error(ErrorKind::usage, "a model's sizes lack " + std::string(key));
  }
  std::int64_t integer(std::string_view key) const { return static_cast<std::int64_t>(number(key)); }
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

/// A size in which the models of a family differ. All models also have the sizes positions and vocabulary.
struct ModelKey {
  std::string name = {};     ///< the key: "layers" in layers=12
  std::int64_t max = 0;      ///< the largest allowed value
  bool real = false;         ///< true: any number above 0; false: only whole numbers
  std::string divides = {};  ///< a key whose number must be a multiple of this key's number; empty: none
  /// The default, computed from the numbers of earlier keys; empty: the number is required.
  std::function<double(ModelSpec const& before)> standard = {};
  std::int64_t min = 1;     ///< the smallest allowed whole number
  std::string member = {};  ///< the name of the field in the model's options, if it differs from `name`
};

/// A named model of a family.
struct NamedModel {
  std::string name = {};             ///< "gpt2-medium"
  std::string hub = {};              ///< repository on the Hugging Face hub; empty: none
  std::vector<double> numbers = {};  ///< values of the family's keys, in the same order
  std::int64_t positions = 0;        ///< 0: not fixed, see ModelSpec
  std::int64_t vocabulary = 0;
  std::int64_t parameters = 0;  ///< the number of parameters; set only if `lacking` is not empty
  std::string lacking = {};     ///< the features of the model that this library lacks; empty: it can be made
};

/// Converts the sizes of a family's models to the entries of a Hugging Face config.json, and back.
struct HubFormat {
  std::string model_type = {};                  ///< "gpt2"; empty: no config.json for this family
  std::vector<std::string> architectures = {};  ///< "GPT2LMHeadModel", ...; the first is written

  /// Maps the key `key` of the file to `number`: a key of the family, "positions" or "vocabulary". `absent`
  /// is the value of a key that the file omits, as in the transformers library; 0: the file must have the
  /// key. `other` is a second name of the key, which transformers also reads.
  struct Number {
    std::string key = {}, number = {};
    double absent = 0.0;
    std::string other = {};
  };
  std::vector<Number> numbers = {};
  /// A key that defines the model but is not one of its sizes. A file may omit the key or give one of the
  /// values `supported`. New files get the first of these values.
  struct Feature {
    std::string key = {};
    std::vector<HubValue> supported = {};
  };
  std::vector<Feature> features = {};
  /// A key that affects only training, such as dropout, and that this library does not apply. `here` is the
  /// value that this library uses. `absent` is the value of a key that the file omits.
  struct Unapplied {
    std::string key = {};
    double here = 0.0, absent = 0.0;
  };
  std::vector<Unapplied> unapplied = {};
  /// Functions that read and write keys that are not in `numbers`, `features` and `unapplied`. When `read` is
  /// called, sizes that are not in `numbers` have their defaults (ModelKey::standard).
  std::function<void(HubConfig& config, ModelSpec& sizes)> read = {};
  std::function<void(ModelSpec const& sizes, HubEntries& entries)> write = {};
};

struct ModelFamily {
  std::string name = {};   ///< the name in command lines: "gpt2" in gpt2:layers=2,heads=2,channels=64
  std::string title = {};  ///< the name in messages: "GPT-2"
  std::vector<ModelKey> keys = {};
  std::vector<NamedModel> models = {};
  /// Makes a model from complete sizes. Throws Error(config) for invalid sizes.
  std::function<AnyModel(ModelSpec const& sizes)> make = {};
  WeightNames weights = {};  ///< how the names of tensors in files differ from the parameters' names
  HubFormat hub = {};

  ModelSpec spec(NamedModel const& named) const {
    ModelSpec spec{{}, named.positions, named.vocabulary};
    for (std::size_t at = 0; at < keys.size(); ++at)
      spec.numbers.push_back({keys[at].name, named.numbers.at(at)});
    return spec;
  }
  /// Returns the sizes that a config.json contains. Throws Error(data) for invalid values. Throws
  /// Error(unsupported) with every feature of the file that the family lacks. Records in `config` the keys
  /// that have no effect in this library.
  ModelSpec spec(HubConfig& config) const;
  /// Returns the entries of a model's config.json. If `sizes_alone`, returns only the sizes and the number
  /// format, to update the file from which the sizes were read.
  HubEntries hub_entries(ModelSpec const& sizes, bool sizes_alone) const;
};

/// Returns all model families. The library's own families come first. The families exist until the program
/// ends and do not change. Any thread may call this function.
std::vector<ModelFamily const*> model_families();

/// Adds a family to the list of families, so that programs know its models by name. Any thread may call this
/// function, also before main. Throws Error(usage) for a name that another family has and for numbers that do
/// not match the family's keys. Returns true, so that the initializer of a global variable can call it.
bool register_model_family(ModelFamily family);

}  // namespace v0
}  // namespace tessera
