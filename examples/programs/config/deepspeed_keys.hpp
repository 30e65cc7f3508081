// SPDX-License-Identifier: Apache-2.0
// Lists every documented key of DeepSpeed's configuration (0.19) and its treatment here. The reader of such
// files, the error messages and the page docs/deepspeed-keys.md use this list.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tessera/train/option_table.hpp"

namespace programs {
using namespace tessera;
namespace cli {

/// The treatment of a key.
enum class KeyUse {
  done,     ///< works as in DeepSpeed
  mapped,   ///< something else here serves the purpose; the text names it
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
/// Returns the independent keys. The others only configure features that are off or refused.
std::span<DeepSpeedKey const> deepspeed_main_keys();

/// Returns the option that a key sets, from option_table; null if there is none.
Option const* option_of(std::string_view path);

/// Returns the key of a path, or null.
DeepSpeedKey const* find_deepspeed_key(std::string_view path);

/// Returns the list as a page of the manual.
std::string deepspeed_keys_page();

}  // namespace cli
}  // namespace programs
