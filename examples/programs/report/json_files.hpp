// SPDX-License-Identifier: Apache-2.0
// Provides the class Reader and the functions with which the program `report` reads its JSON input files.
// They throw Error(data) for invalid contents.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/core/error.hpp"

#include "cli/values.hpp"
#include "report/rows.hpp"

namespace programs {
using namespace tessera;
namespace reporting {

using Json = nlohmann::ordered_json;
/// The end of the error message for an input file that is none of the files that `report` reads.
inline constexpr char kinds[] =
    "give results of compare (JSON), a log of train (JSONL), JSON of plan or monitor, rows of other programs "
    "('rivals'), or a step_log.csv";

/// Reads the values of one JSON object by their keys. If a value has the wrong type, throws Error(data) with
/// the object's place in the file and the key. `place` is a text such as "row 3: ".
class Reader {
 public:
  Reader(std::string file, std::string place, Json const& object)
      : place_(std::move(file) + ": " + std::move(place)), object_(object) {}

  [[noreturn]] void fail(std::string const& text) const {
    throw Error(ErrorKind::data,
                place_ + text + "; the file is damaged or of another kind, create it again or leave it out");
  }
  Json const* find(std::string const& key) const {
    auto const found = object_.find(key);
    bool const absent = found == object_.end() || found->is_null() ||
                        (found->is_number_float() && !std::isfinite(found->get<double>()));
    return absent ? nullptr : &*found;
  }
  std::optional<double> number(std::string const& key, bool signed_values = false) const {
    Json const* const value = find(key);
    if (!value) return std::nullopt;
    if (!value->is_number()) fail(cli::in_quotes(key) + " is not a number");
    double const given = value->get<double>();
    if (!(std::fabs(given) <= 1e30)) fail(cli::in_quotes(key) + " is beyond 1e30");
    if (given < 0.0 && !signed_values) fail(cli::in_quotes(key) + " is below 0");
    return given;
  }
  std::string text(std::string const& key) const {
    Json const* const value = find(key);
    if (!value) return {};
    if (value->is_string()) return value->get<std::string>();
    if (value->is_number_integer()) return std::to_string(value->get<std::int64_t>());
    fail(cli::in_quotes(key) + " is not text");
  }
  std::optional<bool> boolean(std::string const& key) const {
    Json const* const value = find(key);
    if (!value) return std::nullopt;
    if (!value->is_boolean()) fail(cli::in_quotes(key) + " is neither true nor false");
    return value->get<bool>();
  }
  /// Returns a list of numbers. A null in the list becomes nullopt. A missing key gives an empty list.
  std::vector<std::optional<double>> numbers(std::string const& key) const {
    std::vector<std::optional<double>> list;
    Json const* const value = find(key);
    if (!value) return list;
    if (!value->is_array()) fail(cli::in_quotes(key) + " is not a list");
    for (Json const& element : *value) {
      if (!element.is_null() && !element.is_number())
        fail(cli::in_quotes(key) + " holds a value that is not a number");
      double const number = element.is_null() ? NAN : element.get<double>();
      list.push_back(std::isfinite(number) ? std::optional(number) : std::nullopt);
    }
    return list;
  }
  std::optional<Reader> object(std::string const& key) const {
    Json const* const value = find(key);
    if (!value) return std::nullopt;
    if (!value->is_object()) fail(cli::in_quotes(key) + " is not an object");
    return Reader(place_, key + ": ", *value);
  }
  Json const& json() const { return object_; }

 private:
  std::string place_;
  Json const& object_;
};

/// Returns the schema version of `object`, the contents of the file `name`. Throws Error(data) if the version
/// is newer than `newest`.
std::int64_t version_of(std::string const& name, Json const& object, int newest);

/// Adds the keys and values of `environment`, a section of a result file, to `source` as text.
void take_environment(Json const& environment, Source& source);

/// Reads a file with measurements of other programs (rivals) and adds its rows to `inputs`. `name` is the
/// file's path, `json` its contents, and `source` its description.
void read_rivals(std::string const& name, Json const& json, Source source, Inputs& inputs);

/// Reads a log of the program `train` and adds it to `inputs` as one row with the name `stem`. `name` is the
/// file's path and `text` are its contents.
void read_training_log(std::string const& name, std::string_view text, std::string const& stem,
                       Inputs& inputs);

}  // namespace reporting
}  // namespace programs
