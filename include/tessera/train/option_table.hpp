// SPDX-License-Identifier: Apache-2.0
// Lists the options of a trainer, one row for each option. Other code uses these rows to check ranges, to
// check that ranks agree, to define the flags of programs, to read files of settings, and to write the
// settings to results. docs/trainer.md has a table with these rows.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <string_view>

#include "tessera/config.hpp"
#include "tessera/optim/schedule.hpp"
#include "tessera/train/options.hpp"

namespace tessera {
inline namespace v0 {

/// A reference to the value of one option of any type.
class OptionValue {
 public:
  enum class Type : std::uint8_t { real, integer, count, seed, boolean, choice };

  OptionValue(double& value) : type_(Type::real), at_(&value) {}
  OptionValue(std::int64_t& value) : type_(Type::integer), at_(&value) {}
  OptionValue(int& value) : type_(Type::count), at_(&value) {}
  OptionValue(std::uint64_t& value) : type_(Type::seed), at_(&value) {}
  OptionValue(bool& value) : type_(Type::boolean), at_(&value) {}
  OptionValue(RateShape& value) : type_(Type::choice), at_(&value) {}
  OptionValue(BindThreads& value) : type_(Type::choice), at_(&value) {}

  Type type() const { return type_; }
  double& real() const { return *static_cast<double*>(at_); }
  std::uint64_t& seed() const { return *static_cast<std::uint64_t*>(at_); }
  bool& boolean() const { return *static_cast<bool*>(at_); }
  /// Returns the value of an enumeration as a number. All enumerations of the table have one byte.
  unsigned char& choice() const { return *static_cast<unsigned char*>(at_); }
  /// Returns the value of an option of type `integer`, `count`, `boolean` or `choice`.
  std::int64_t integer() const {
    return type_ == Type::integer   ? *static_cast<std::int64_t*>(at_)
           : type_ == Type::count   ? *static_cast<int*>(at_)
           : type_ == Type::boolean ? std::int64_t{boolean()}
                                    : std::int64_t{choice()};
  }
  /// Sets a value of type `integer`, `count`, `boolean` or `choice`.
  void set_integer(std::int64_t value) const {
    if (type_ == Type::integer)
      *static_cast<std::int64_t*>(at_) = value;
    else if (type_ == Type::count)
      *static_cast<int*>(at_) = static_cast<int>(value);
    else if (type_ == Type::boolean)
      boolean() = value != 0;
    else
      choice() = static_cast<unsigned char>(value);
  }

 private:
  Type type_;
  void* at_;
};

/// The part of the help text in which an option appears. The rows of options in the group `shape` have no
/// flags, because other code of the programs defines these flags.
enum class OptionGroup : std::uint8_t { optimizer, loss_scale, machine, shape };

/// Further rules for the values of an option.
enum class OptionRule : std::uint8_t {
  none,
  below,         ///< `max` itself is not legal
  power_of_two,  ///< the value must be a power of two, because multiplying by other values rounds
  bytes          ///< a number of bytes; programs accept a unit, such as GiB
};

/// One option of a trainer.
struct Option {
  std::string_view name;                       ///< as in TrainerOptions: "loss_scale.initial"
  OptionValue (*in)(TrainerOptions& options);  ///< returns a reference to the option's value
  OptionGroup group;
  double min = 0.0, max = std::numeric_limits<double>::infinity();  ///< legal values, both inclusive
  OptionRule rule = OptionRule::none;
  bool must_agree = true;    ///< all ranks must give the same value
  std::string_view flags{};  ///< the names of its flag in programs; messages use the first name; empty: none
  std::string_view key{};    ///< its key in the settings that logs and results contain; empty: none
  std::string_view
      choices{};            ///< names of the values of an enumeration, in order; of a bool: true, then false
  std::string_view help{};  ///< for --help
  /// The key in DeepSpeed's configuration that sets only this option. Separate code reads keys that set
  /// several options or have conditions.
  std::string_view deepspeed{};
};

namespace detail {

inline constexpr double max_integer = 0x1p40;                          // no run needs a larger number
inline constexpr double max_real = std::numeric_limits<float>::max();  // larger values are infinite in fp32
inline constexpr double min_normal = std::numeric_limits<float>::min();

}  // namespace detail

#define TESSERA_OPTION(field) \
  .name = #field, .in = [](TrainerOptions& options) -> OptionValue { return options.field; }

/// All options that are numbers or choices, in the order of the help text. Separate code handles the other
/// members of TrainerOptions (nvme_directory, checkpoints, freeze, lora).
inline constexpr Option option_table[] = {
    {TESSERA_OPTION(learning_rate), .group = OptionGroup::optimizer, .max = detail::max_real,
     .flags = "--learning-rate,--lr", .key = "learning_rate", .help = "the highest learning rate"},
    {TESSERA_OPTION(beta1), .group = OptionGroup::optimizer, .max = 1, .rule = OptionRule::below,
     .flags = "--beta1", .key = "beta1", .help = "decay of the first moment"},
    {TESSERA_OPTION(beta2), .group = OptionGroup::optimizer, .max = 1, .rule = OptionRule::below,
     .flags = "--beta2", .key = "beta2", .help = "decay of the second moment"},
    {TESSERA_OPTION(epsilon), .group = OptionGroup::optimizer, .min = detail::min_normal,
     .max = detail::max_real, .flags = "--epsilon", .key = "epsilon",
     .help = "added to the square root of the second moment", .deepspeed = "optimizer.params.eps"},
    {TESSERA_OPTION(weight_decay), .group = OptionGroup::optimizer, .max = detail::max_real,
     .flags = "--weight-decay", .key = "weight_decay", .help = "weight decay, on matrices only"},
    {TESSERA_OPTION(clip), .group = OptionGroup::optimizer, .max = detail::max_real, .flags = "--clip",
     .key = "clip", .help = "largest gradient norm; 0: no clipping", .deepspeed = "gradient_clipping"},
    {TESSERA_OPTION(decoupled_decay), .group = OptionGroup::optimizer, .flags = "--optimizer",
     .key = "optimizer", .choices = "adamw|adam", .help = "adam: weight decay is added to the gradient"},
    {TESSERA_OPTION(schedule), .group = OptionGroup::optimizer, .flags = "--schedule", .key = "schedule",
     .choices = "constant|linear|cosine|warmuplr|warmupdecaylr|warmupcosinelr",
     .help = "learning rate after the warm-up; the last three are DeepSpeed's"},
    {TESSERA_OPTION(warmup_steps), .group = OptionGroup::optimizer, .max = detail::max_integer,
     .flags = "--warmup-steps", .key = "warmup_steps", .help = "steps over which the learning rate rises",
     .deepspeed = "scheduler.params.warmup_num_steps"},
    {TESSERA_OPTION(total_steps), .group = OptionGroup::optimizer, .max = detail::max_integer,
     .flags = "--schedule-steps", .key = "schedule_steps",
     .help = "step at which the schedule ends; 0: the last step of the run"},
    {TESSERA_OPTION(final_fraction), .group = OptionGroup::optimizer, .max = 1, .flags = "--final-fraction",
     .key = "final_fraction", .help = "fraction of the learning rate at the end of the schedule"},
    {TESSERA_OPTION(first_rate), .group = OptionGroup::optimizer, .max = detail::max_real,
     .flags = "--first-rate", .key = "first_rate", .help = "first learning rate of DeepSpeed's schedules"},
    {TESSERA_OPTION(log_warmup), .group = OptionGroup::optimizer, .flags = "--warmup-type",
     .key = "warmup_type", .choices = "log|linear", .help = "shape of the warm-up of DeepSpeed's schedules",
     .deepspeed = "scheduler.params.warmup_type"},

    {TESSERA_OPTION(loss_scale.initial), .group = OptionGroup::loss_scale, .min = 0x1p-100, .max = 0x1p100,
     .rule = OptionRule::power_of_two, .flags = "--initial-loss-scale", .key = "initial_loss_scale",
     .help = "first loss scale, a power of two; static: the only one"},
    {TESSERA_OPTION(loss_scale.minimum), .group = OptionGroup::loss_scale, .min = 0x1p-100, .max = 0x1p100,
     .rule = OptionRule::power_of_two, .flags = "--min-loss-scale", .key = "min_loss_scale",
     .help = "smallest loss scale"},
    {TESSERA_OPTION(loss_scale.maximum), .group = OptionGroup::loss_scale, .min = 0x1p-100, .max = 0x1p100,
     .rule = OptionRule::power_of_two, .flags = "--max-loss-scale", .key = "max_loss_scale",
     .help = "largest loss scale"},
    {TESSERA_OPTION(loss_scale.growth_interval), .group = OptionGroup::loss_scale, .min = 1,
     .max = detail::max_integer, .flags = "--loss-scale-window", .key = "loss_scale_window",
     .help = "steps without overflow before the scale doubles"},
    {TESSERA_OPTION(loss_scale.growth_delay), .group = OptionGroup::loss_scale, .max = detail::max_integer,
     .flags = "--loss-scale-delay", .key = "loss_scale_delay",
     .help = "steps without overflow that do not count for that, at the start and after an overflow"},
    {TESSERA_OPTION(loss_scale.hysteresis), .group = OptionGroup::loss_scale, .min = 1,
     .max = detail::max_integer, .flags = "--hysteresis", .key = "hysteresis",
     .help = "number of the overflow that halves the scale; earlier ones only skip their step"},
    {TESSERA_OPTION(loss_scale.consecutive_hysteresis), .group = OptionGroup::loss_scale,
     .flags = "--consecutive-hysteresis", .key = "consecutive_hysteresis",
     .help = "a step without overflow resets the count of overflows; else only growth does"},

    {TESSERA_OPTION(seed), .group = OptionGroup::machine, .flags = "--seed", .key = "seed",
     .help = "seed of weights and data order"},
    {TESSERA_OPTION(threads), .group = OptionGroup::machine, .max = 1024, .must_agree = false,
     .flags = "--threads", .key = "threads", .help = "threads of a rank; 0: an equal share of the cores"},
    {TESSERA_OPTION(bind_threads), .group = OptionGroup::machine, .flags = "--bind-threads",
     .key = "bind_threads", .choices = "none|cores|numa",
     .help = "cores: a core for each thread of a rank; numa: the cores next to the rank's GPU"},
    {TESSERA_OPTION(prefetch), .group = OptionGroup::machine, .max = 1024, .flags = "--prefetch",
     .key = "prefetch", .help = "units whose weights are gathered ahead of use; 0: no overlap"},
    {TESSERA_OPTION(bucket_bytes), .group = OptionGroup::machine, .max = detail::max_integer,
     .flags = "--bucket-bytes", .key = "bucket_bytes",
     .help = "bytes of gradients in one call; 0: one call for each unit"},
    {TESSERA_OPTION(channels), .group = OptionGroup::machine, .min = 1, .max = 2, .flags = "--channels",
     .key = "collective_channels",  // "channels" is a size of the model
     .help = "2: gather weights while gradients are summed, on GPUs with a second communicator"},
    {TESSERA_OPTION(weight_lag), .group = OptionGroup::machine, .max = 1024, .flags = "--weight-lag",
     .key = "weight_lag",
     .help = "units by which weight gradients run behind input gradients, in their own lane; 0: in the same "
             "lane"},
    {TESSERA_OPTION(host_memory_limit), .group = OptionGroup::machine, .rule = OptionRule::bytes,
     .must_agree = false, .flags = "--host-memory",
     .help = "limit of host memory for all ranks together, such as 512GiB"},

    {TESSERA_OPTION(batch), .group = OptionGroup::shape, .min = 1, .max = detail::max_integer},
    {TESSERA_OPTION(sequence), .group = OptionGroup::shape, .min = 1, .max = detail::max_integer},
    {TESSERA_OPTION(accumulation), .group = OptionGroup::shape, .min = 1, .max = max_accumulation},
    {TESSERA_OPTION(recompute_every), .group = OptionGroup::shape, .min = 1, .max = detail::max_integer},
    {TESSERA_OPTION(replicas), .group = OptionGroup::shape, .min = 1, .max = detail::max_integer},
    {TESSERA_OPTION(skips_allowed), .group = OptionGroup::shape, .max = detail::max_integer},
    {TESSERA_OPTION(memory_limit), .group = OptionGroup::shape, .rule = OptionRule::bytes,
     .must_agree = false},
};

#undef TESSERA_OPTION

/// Returns a read-only reference to the value of one option.
inline OptionValue const value_of(Option const& option, TrainerOptions const& options) {
  return option.in(const_cast<TrainerOptions&>(options));
}

}  // namespace v0
}  // namespace tessera
