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
  refused,  ///< only the value `standard` is accepted; the text says why and what to write instead
  section,  ///< an object with its own keys
};

struct DeepSpeedKey {
  std::string_view path;      ///< "zero_optimization.stage"; a * matches any name
  std::string_view standard;  ///< the value of a missing key, as JSON; empty: it has none
  KeyUse use = KeyUse::none;
  /// one sentence without its full stop; the page of keys prints it after the option's flag
  std::string_view text;
};

/// Returns all keys in the order of DeepSpeed's documentation.
std::span<DeepSpeedKey const> deepspeed_keys();
/// Returns the keys that users usually set. The list leaves out all keys that only configure a feature that
/// is off or refused.
std::span<DeepSpeedKey const> deepspeed_main_keys();

/// Returns the trainer option that a key sets, as listed in option_table; null if there is none.
Option const* option_of(std::string_view path);

/// Returns the entry for the key at `path`, such as "zero_optimization.stage"; null if there is none.
DeepSpeedKey const* find_deepspeed_key(std::string_view path);

/// Returns the text of docs/deepspeed-keys.md.
std::string deepspeed_keys_page();

}  // namespace cli
}  // namespace programs
