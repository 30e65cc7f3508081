// SPDX-License-Identifier: Apache-2.0
// Lists every documented key of a DeepSpeed 0.19 configuration, and the effect of the key in Tessera. The
// parser, its error messages and the page docs/deepspeed-keys.md use this list.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tessera/train/option_table.hpp"

namespace programs {
using namespace tessera;
namespace cli {

/// The effect of a key in Tessera. `text` and `standard` are members of DeepSpeedKey.
enum class KeyUse {
  done,     ///< works as in DeepSpeed
  mapped,   ///< another setting of Tessera does the same; `text` names it
  none,     ///< the key has no effect in Tessera; `text` says why
  refused,  ///< only the value `standard` is accepted; `text` says why and what to write instead
  section,  ///< an object with its own keys
};

/// A key of a DeepSpeed configuration.
struct DeepSpeedKey {
  std::string_view path;      ///< "zero_optimization.stage"; a * matches any name
  std::string_view standard;  ///< the value of a missing key, as JSON; empty: there is none
  KeyUse use = KeyUse::none;
  /// an explanation: one sentence without its full stop. docs/deepspeed-keys.md shows it in the column
  /// "note".
  std::string_view text;
};

/// Returns all keys in the order of DeepSpeed's documentation.
std::span<DeepSpeedKey const> deepspeed_keys();
/// Returns the keys that users usually set. The list leaves out the keys of features that
/// DeepSpeed switches off by default, and of features that this program refuses.
std::span<DeepSpeedKey const> deepspeed_main_keys();

/// Returns the trainer option that the key at `path` sets, as listed in option_table; null if there is none.
Option const* option_of(std::string_view path);

/// Returns the element of deepspeed_keys() for the key at `path`, such as "zero_optimization.stage"; null if
/// there is none.
DeepSpeedKey const* find_deepspeed_key(std::string_view path);

/// Returns the text of docs/deepspeed-keys.md.
std::string deepspeed_keys_page();

}  // namespace cli
}  // namespace programs
