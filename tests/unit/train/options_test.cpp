// SPDX-License-Identifier: Apache-2.0
// Tests option_table, which must list every member of TrainerOptions. Also tests that the checks of options,
// the comparison of options between ranks, and the command-line flags of programs follow this table.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include <doctest/doctest.h>

#include "tessera/train/check_options.hpp"
#include "tessera/train/option_table.hpp"
#include "tessera/train/planning.hpp"

#include "support/runs.hpp"
#include "support/tied_model.hpp"

namespace {

using namespace support;
using Type = OptionValue::Type;

/// Converts to any type. members() counts the members of a struct with it: the number is the largest number
/// of initializers for which the struct can be initialized.
struct Anything {
  template <class T>
  operator T&() const;
};
template <class S, std::size_t... I>
constexpr bool takes(std::index_sequence<I...>) {
  return requires { S{(static_cast<void>(I), Anything())...}; };
}
template <class S, std::size_t N = 1>
constexpr std::size_t members() {
  if constexpr (takes<S>(std::make_index_sequence<N + 1>()))
    return members<S, N + 1>();
  else
    return N;
}

TrainerOptions legal() {
  TrainerOptions options;
  options.batch = options.sequence = 4;
  return options;
}
std::string refusal(TrainerOptions const& options) {
  try {
    detail::check_options(options, 1 << 20);
  } catch (Error const& error) {
    return error.what();
  }
  return {};
}
/// Sets the option `value` to `number`, converted to the type of the option.
void set(OptionValue value, double number) {
  if (value.type() == Type::real)
    value.real() = number;
  else
    value.set_integer(static_cast<std::int64_t>(number));
}

}  // namespace

TEST_CASE("every member of the options is in the table or has code of its own") {
  std::set<std::string_view> rows, tops;
  std::size_t of_loss_scale = 0;
  for (Option const& option : option_table) {
    CHECK(rows.insert(option.name).second);
    tops.insert(option.name.substr(0, option.name.find('.')));
    of_loss_scale += option.name.starts_with("loss_scale.");
  }
  constexpr std::size_t with_own_code = 4;  // nvme_directory, checkpoints, freeze, lora
  CHECK(tops.size() + with_own_code == members<TrainerOptions>());
  CHECK(of_loss_scale == members<LossScaleOptions>());
}

TEST_CASE("flags and keys of options are unique, and each has a help text") {
  std::set<std::string_view> flags, keys;
  for (Option const& option : option_table) {
    INFO(option.name);
    if (!option.flags.empty()) {
      CHECK(flags.insert(option.flags).second);
      CHECK(!option.help.empty());
      TrainerOptions options;
      OptionValue const value = option.in(options);
      bool const counts = value.type() == Type::integer || value.type() == Type::count;
      CHECK((!counts || option.rule == OptionRule::bytes || std::isfinite(option.max)));
    }
    if (!option.key.empty()) CHECK(keys.insert(option.key).second);
    CHECK((option.group == OptionGroup::shape) == option.flags.empty());
  }
}

TEST_CASE("the limits of an option are legal and what is beyond them is refused by name") {
  REQUIRE(refusal(legal()).empty());
  for (Option const& option : option_table) {
    INFO(option.name);
    TrainerOptions options = legal();
    OptionValue const value = option.in(options);
    if (value.type() == Type::seed || value.type() == Type::boolean || value.type() == Type::choice) continue;
    bool const real = value.type() == Type::real, power = option.rule == OptionRule::power_of_two;
    auto const refused = [&](double number) {
      set(value, number);
      std::string const text = refusal(options);
      CHECK(text.find("options: ") == 0);
      CHECK(text.find(option.name) != std::string::npos);
    };
    double const below = power ? option.min / 2 : real ? std::nextafter(option.min, -1.0) : option.min - 1;
    refused(below);
    if (real) refused(std::numeric_limits<double>::quiet_NaN());
    if (real) refused(std::numeric_limits<double>::infinity());
    if (power) refused(3.0);
    if (option.rule == OptionRule::below)
      refused(option.max);
    else if (std::isfinite(option.max) && !(value.type() == Type::count && option.max > 1e9))
      refused(power  ? option.max * 2
              : real ? std::nextafter(option.max, std::numeric_limits<double>::infinity())
                     : option.max + 1);
  }
}

TEST_CASE("a schedule that falls needs total_steps") {
  for (RateShape const shape :
       {RateShape::constant, RateShape::linear, RateShape::cosine, RateShape::warmup_lr,
        RateShape::warmup_decay_lr, RateShape::warmup_cosine_lr}) {
    TrainerOptions options = legal();
    options.schedule = shape;
    bool const falls = shape != RateShape::constant && shape != RateShape::warmup_lr;
    CHECK((refusal(options).find("total_steps is 0, but this schedule falls") != std::string::npos) == falls);
    options.total_steps = 1;
    CHECK(refusal(options).empty());
  }
}

TEST_CASE("ranks have to agree on every option but those that each may choose") {
  TrainerOptions const usual = legal();
  StepShape shape;
  shape.batch = shape.sequence = 4;
  StepPlan const plan = make_plan(TiedModel{}.units({4, 4}), recipe("zs0", "fp32", "none"), shape);
  std::uint64_t const hash = detail::hash_of_numbers(usual, plan);
  std::set<std::string_view> chosen;
  for (Option const& option : option_table) {
    INFO(option.name);
    TrainerOptions options = usual;
    OptionValue const value = option.in(options);
    if (value.type() == Type::real)
      value.real() = value.real() * 0.5 + 0.25;
    else if (value.type() == Type::seed)
      ++value.seed();
    else
      value.set_integer(value.type() == Type::boolean ? !value.boolean() : value.integer() + 1);
    CHECK((detail::hash_of_numbers(options, plan) != hash) == option.must_agree);
    if (!option.must_agree) chosen.insert(option.name);
  }
  CHECK(chosen == std::set<std::string_view>{"threads", "memory_limit", "host_memory_limit"});
}
