// SPDX-License-Identifier: Apache-2.0
// A record of a JSONL file: the text in one of its fields.
#pragma once

#include <string>
#include <string_view>

namespace tessera {
inline namespace v0 {
namespace text {

/// The string in `field` of the JSON object on a line, of valid UTF-8; of equal fields the last. A surrogate
/// without its other half is U+FFFD. Throws Error(data) that starts with `where`.
std::string field_of(std::string_view line, std::string const& field, std::string const& where);

}  // namespace text
}  // namespace v0
}  // namespace tessera
