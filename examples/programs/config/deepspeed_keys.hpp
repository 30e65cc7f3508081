// SPDX-License-Identifier: Apache-2.0
// Lists every documented key of DeepSpeed 0.19's configuration and what Tessera does with it. The parser, its
// error messages and the page docs/deepspeed-keys.md use this list.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tessera/train/option_table.hpp"

namespace programs {
using namespace tessera;
namespace cli {

/// The treatment of a key by Tessera.
enum class KeyUse {
  done,     ///< works as in DeepSpeed
  mapped,   ///< another setting here does the same; the text names it
  none,     ///< it has no effect here; the text says why
  refused,  ///< any value except `standard` is refused; the text says why and what to write instead
  section,  ///< an object with its own keys
};

struct DeepSpeedKey {
  std::string_view path;      ///< "zero_optimization.stage"; a * matches any name
  std::string_view standard;  ///< value if the key is missing, as JSON; empty: none
  KeyUse use = KeyUse::none;
  std::string_view text;  ///< one sentence without its full stop; follows the flag of the key's option
};

/// Returns all keys in the order of DeepSpeed's documentation.
std::span<DeepSpeedKey const> deepspeed_keys();
/// Returns the keys that users usually set. Leaves out the keys that only configure a feature that is off or
/// refused.
std::span<DeepSpeedKey const> deepspeed_main_keys();

/// Returns the trainer option that a key sets, as listed in option_table; null if there is none.
Option const* option_of(std::string_view path);

/// Returns the key of a path, or null.
DeepSpeedKey const* find_deepspeed_key(std::string_view path);

/// Returns the text of docs/deepspeed-keys.md.
std::string deepspeed_keys_page();

}  // namespace cli
}  // namespace programs
