// SPDX-License-Identifier: Apache-2.0
// Every documented key of DeepSpeed's configuration (0.19), and what becomes of it here. The reader of such
// files, the refusals and the page docs/deepspeed-keys.md go by this list.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tessera/train/option_table.hpp"

namespace programs {
using namespace tessera;
namespace cli {

/// What becomes of a key.
enum class KeyUse {
  done,     ///< it does here what it does there
  mapped,   ///< another thing here does what it is for; the text says which
  none,     ///< it has no effect here; the text says why
  refused,  ///< any value but `standard` is refused; the text says why and what to write instead
  section,  ///< an object with keys of its own
};

struct DeepSpeedKey {
  std::string_view path;      ///< "zero_optimization.stage"; a * stands for any name
  std::string_view standard;  ///< what a file without it means, as JSON; empty: nothing
  KeyUse use = KeyUse::none;
  std::string_view text;  ///< one sentence, without its full stop; behind the flag of the key's option
};

/// In the order of DeepSpeed's documentation.
std::span<DeepSpeedKey const> deepspeed_keys();
/// Those that matter by themselves; the others say how something is done that is off, or refused.
std::span<DeepSpeedKey const> deepspeed_main_keys();

/// The option that a key gives, by the rows of option_table; null if none has this key.
Option const* option_of(std::string_view path);

/// The key of a path, or null.
DeepSpeedKey const* find_deepspeed_key(std::string_view path);

/// The list as a page of the manual.
std::string deepspeed_keys_page();

}  // namespace cli
}  // namespace programs
