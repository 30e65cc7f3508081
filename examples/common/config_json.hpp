// SPDX-License-Identifier: Apache-2.0
// The text of a configuration as JSON: comments may stand in it, and no key twice.
#pragma once

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/core/error.hpp"
#include "tessera/data/file_bytes.hpp"

#include "common/values.hpp"

namespace tessera {
inline namespace v0 {
namespace cli {

using Json = nlohmann::ordered_json;

/// The JSON of a text. Throws Error(config): a syntax error, a key given twice, too deep or too long a text.
inline Json parse_config(std::string_view text, std::string const& name) {
  constexpr int most_depth = 16;
  constexpr std::size_t most_bytes = 1 << 20;
  auto const fail = [&](std::string const& what) { throw Error(ErrorKind::config, name + ": " + what); };
  if (text.size() > most_bytes)
    fail("more than 1 MiB, which no configuration has; name the JSON file of a configuration");
  std::vector<std::set<std::string>> keys;
  Json::parser_callback_t const watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > most_depth) fail("deeper than any configuration; name the JSON file of one");
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.back().insert(parsed.get<std::string>()).second)
      fail("the key " + in_quotes(parsed.get<std::string>()) + " is given twice; leave one out");
    return true;
  };
  try {
    Json json = Json::parse(text, watch, true, /*ignore_comments=*/true);
    if (!json.is_object()) fail("no JSON object; a configuration is one: {\"train_batch_size\": 32, ...}");
    return json;
  } catch (Json::exception const& error) {
    std::string what =
        error.what();  // "[json.exception.parse_error.101] parse error at line 3, column 5: ..."
    fail("no JSON, " + v0::detail::printable(what.substr(std::min(what.find("] ") + 2, what.size()))));
  }
  return {};
}

}  // namespace cli
}  // namespace v0
}  // namespace tessera
