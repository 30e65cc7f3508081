// SPDX-License-Identifier: Apache-2.0
// Provides a command-line flag for every slot of a recipe. A recipe is the set of policies of a training. A
// slot is one decision of a recipe, such as the precision; the possible values of a slot are its choices. The
// name of a flag is the title of the slot, unless this file gives another name.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "tessera/policy/parse.hpp"

#include "cli/values.hpp"

namespace programs {
using namespace tessera;
namespace cli {

/// Stores one value for each slot.
template <class Value>
class PerSlot {
 public:
  template <class Slot>
  Value& of() {
    return values_[slot_place<Slot>()];
  }
  template <class Slot>
  Value const& of() const {
    return values_[slot_place<Slot>()];
  }

 private:
  std::array<Value, slot_count> values_{};
};

/// The names of a slot's flag and its help.
struct SlotFlag {
  /// the flag in programs that accept one choice, such as "--loss-scale" for the slot "loss scale"
  std::string one;
  /// the flag in programs that accept a list of choices: the plural of `one` if there is one, then other
  /// spellings
  std::string several;
  std::string help;  ///< the text after the choices in `--help`
  Names also;        ///< other spellings of the choices; messages suggest them after a typing error
};
template <class Slot>
SlotFlag slot_flag() {
  std::string title = "--" + std::string(Slot::title);
  std::replace(title.begin(), title.end(), ' ', '-');
  if constexpr (std::is_same_v<Slot, slot::device>)
    return {title, title, "where ranks compute: threads of this process, or a GPU each", {}};
  if constexpr (std::is_same_v<Slot, slot::sharding>)
    return {
        "--stage,--sharding,--strategies",
        "--stages,--stage,--sharding",
        "zs0 to zs3 are the ZeRO stages 0 to 3, in which every rank updates; in dp only rank 0 updates and "
        "broadcasts the weights, as in DataParallel of PyTorch",
        {"0", "1", "2", "3", "ddp", "zero0", "zero1", "zero2", "zero3"}};
  if constexpr (std::is_same_v<Slot, slot::precision>)
    return {title, "--precisions,--precision", "number format of products", {}};
  if constexpr (std::is_same_v<Slot, slot::loss_scale>)
    return {title, title, "loss scale, which keeps small gradients within the range of fp16", {}};
  if constexpr (std::is_same_v<Slot, slot::offload>)
    return {
        "--offload,--offload-strategies",
        "--offloads,--offload,--offload-strategies",
        "state kept outside the device. cpu_optimizer, nvme_optimizer: master weights and moments, in host "
        "memory or on NVMe. cpu_full, nvme: also the parameters, in the same place. infinity: parameters in "
        "host memory, optimizer on NVMe; nvme_parameters: the reverse",
        {"cpu"}};
  if constexpr (std::is_same_v<Slot, slot::recompute>)
    return {title, title, "activations that backward recomputes", {}};
  if constexpr (std::is_same_v<Slot, slot::reduction>)
    return {title,
            title,
            "ordered: the same bits for every stage, world and accumulation of one micro-batch",
            {}};
  if constexpr (std::is_same_v<Slot, slot::communication>) return {title, title, "how buckets are sent", {}};
  if constexpr (std::is_same_v<Slot, slot::capture>)
    return {title, title, "graph: the whole step as one CUDA graph", {}};
  if constexpr (std::is_same_v<Slot, slot::attention>) return {title, title, "which attention runs", {}};
  if constexpr (std::is_same_v<Slot, slot::parallel>) return {title, title, "the axes of the mesh", {}};
  if constexpr (std::is_same_v<Slot, slot::adapters>)
    return {title, title, "lora: train the adapters of --lora instead of the model's own weights", {}};
  return {title, title, "", {}};
}

/// Returns the names of a slot's choices: slot_choices<slot::recompute>() is none, gelu, block, every.
template <class Slot>
Names slot_choices() {
  auto const& names = choice_names<Slot>();
  return Names(names.begin(), names.end());
}

/// Returns the name of the slot's choice that `value` names in upper or lower case; nullopt if `value` names
/// no choice of the slot.
template <class Slot>
std::optional<std::string> slot_names(std::string const& value) {
  Names const names = slot_choices<Slot>();
  std::string name = lower(value);
  if constexpr (requires { Slot::spelled(value); }) name = std::string(Slot::spelled(name));
  if (std::find(names.begin(), names.end(), name) == names.end()) return std::nullopt;
  return name;
}
/// Returns the name of the slot's choice that `value` names in upper or lower case. Throws Error(usage) if
/// `value` names no choice; the message gives the nearest choice and all choices.
template <class Slot>
std::string slot_choice(std::string const& flag, std::string const& value) {
  if (auto name = slot_names<Slot>(value)) return *name;
  Names names = slot_choices<Slot>();
  for (auto const& spelling : slot_flag<Slot>().also) names.push_back(spelling);
  return choice(flag, value, names);
}

/// Returns the help text of a slot's flag: its choices and an explanation.
template <class Slot>
std::string slot_help() {
  std::string const help = slot_flag<Slot>().help;
  return joined(slot_choices<Slot>()) + (help.empty() ? "" : "; " + help);
}

/// Returns the name of a slot's default on a device. If the default depends on the precision, the text also
/// lists each precision that has another default: "none; fp16: dynamic". In the same way it lists each other
/// device: "ordered; on cuda: fast".
template <class Slot>
std::string slot_default(std::string const& device) {
  std::string const standard(Slot::standard(parse_recipe({.device = device})));
  std::string text = standard;
  for (std::string const& precision : slot_choices<slot::precision>())
    if (std::string const other(Slot::standard(parse_recipe({.device = device, .precision = precision})));
        !std::is_same_v<Slot, slot::precision> && other != standard)
      text += "; " + precision + ": " + other;
  if constexpr (!std::is_same_v<Slot, slot::device>)
    for (DeviceInfo const& traits : device_table)
      if (std::string const other(Slot::standard(parse_recipe({.device = traits.name}))); other != standard)
        text += "; on " + std::string(traits.name) + ": " + other;
  return text;
}

}  // namespace cli
}  // namespace programs
