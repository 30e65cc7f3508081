// SPDX-License-Identifier: Apache-2.0
#include "config/deepspeed.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/data/file_bytes.hpp"

#include "cli/option_flags.hpp"
#include "config/config_json.hpp"
#include "config/deepspeed_keys.hpp"

namespace programs {
using namespace tessera;
namespace cli {
namespace {

/// Returns the configuration without two older forms: a boolean as the value of zero_optimization, and keys
/// of stage 3 without the prefix "stage3_". DeepSpeed still accepts these forms.
Json in_current_format(Json json) {
  auto const found = json.find("zero_optimization");
  if (found == json.end()) return json;
  if (found->is_boolean()) *found = {{"stage", found->get<bool>() ? 1 : 0}};
  if (!found->is_object()) return json;
  Json today = Json::object();
  for (auto const& [name, value] : found->items()) {
    std::string const of_stage3 = "stage3_" + name;
    bool const renamed = find_deepspeed_key("zero_optimization." + name) == nullptr &&
                         find_deepspeed_key("zero_optimization." + of_stage3) != nullptr &&
                         !found->contains(of_stage3);
    today[renamed ? of_stage3 : name] = value;
  }
  *found = std::move(today);
  return json;
}

/// Returns `value`, the value of the key at `path`. In the sections below, DeepSpeed converts it: if a
/// boolean is expected, "yes" and 1 become true. Otherwise the string "2" becomes the number 2.
Json converted(Json const& value, std::string_view path, bool expect_bool) {
  constexpr std::string_view sections[] = {"zero_optimization", "fp16",  "bf16",        "bfloat16",
                                           "tensorboard",       "wandb", "csv_monitor", "flops_profiler"};
  auto const within = [&](std::string_view section) {
    return path.size() > section.size() && path.starts_with(section) && path[section.size()] == '.';
  };
  if (!std::any_of(std::begin(sections), std::end(sections), within)) return value;
  if (!expect_bool && value.is_string()) {
    double number = 0;
    std::string const text = value.get<std::string>();
    auto const [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
    return code == std::errc() && end == text.data() + text.size() ? Json(number) : value;
  }
  if (!expect_bool || value.is_boolean()) return value;
  Names const yes = {"1", "on", "t", "true", "y", "yes"}, no = {"0", "off", "f", "false", "n", "no"};
  std::string const word = value.is_string()                 ? lower(value.get<std::string>())
                           : value == 1                      ? "1"
                           : value.is_number() && value == 0 ? "0"
                                                             : "";
  if (std::find(yes.begin(), yes.end(), word) != yes.end()) return true;
  if (std::find(no.begin(), no.end(), word) != no.end()) return false;
  return value;
}

/// Returns whether a key is only a comment, according to its name.
bool is_comment(std::string_view name) {
  return name.starts_with('_') || name.starts_with("//") || name.starts_with('#') ||
         lower(name).starts_with("comment");
}

/// Converts one DeepSpeed configuration to flags, and collects the errors of its keys.
class Reader {
 public:
  Reader(Json json, std::string const& name, OnLine const& on_line)
      : json_(in_current_format(std::move(json))), name_(name), on_line_(on_line) {}

  DeepSpeedRun read() {
    visit(json_, "");
    batch();
    optimizer();
    precision();
    zero();
    rest();
    for (auto const& [why, keys] : without_effect_)
      run_.notes.push_back(joined(keys) + ": no effect here, because " + why);
    if (refusals_.empty()) return std::move(run_);
    std::string text = name_ + ": ";
    if (refusals_.size() > 1) text += std::to_string(refusals_.size()) + " keys cannot be used: ";
    for (std::size_t at = 0; at < std::min(max_refusals, refusals_.size()); ++at)
      text += (at > 0 ? "; " : "") + (refusals_.size() > 1 ? "(" + std::to_string(at + 1) + ") " : "") +
              refusals_[at];
    if (refusals_.size() > max_refusals)
      text += "; and " + std::to_string(refusals_.size() - max_refusals) + " more";
    throw Error(ErrorKind::config, text);
  }

 private:
  // ---- keys that are present

  /// Checks every key of `object`, which has the path `above`. Stores an error for unknown and refused keys,
  /// and a note for keys without effect.
  void visit(Json const& object, std::string const& above) {
    for (auto const& [name, value] : object.items()) {
      std::string const path = above.empty() ? name : above + "." + name;
      DeepSpeedKey const* const key = name == "*" ? nullptr : find_deepspeed_key(path);
      if (key == nullptr && above.empty() && is_comment(name))
        without_effect(files::printable(name), "it is not a key; DeepSpeed ignores it too");
      else if (key == nullptr)
        unknown(path, above);
      else if (key->use == KeyUse::section && !value.is_object() && !value.is_null())
        refuse_key(path, "is " + shown(value) + "; give an object of keys");
      else if (key->use == KeyUse::refused && !is_standard(*key, path, value))
        refuse_key(path, "is " + shown(value) + ", which is not supported: " + std::string(key->text));
      else if (key->use == KeyUse::none && !key->text.starts_with("its section is"))
        without_effect(path, std::string(key->text));
      if (key != nullptr && value.is_object() && key->use != KeyUse::refused) visit(value, path);
      if (key != nullptr && value.is_array())
        for (auto const& item : value)
          if (item.is_object() && key->use == KeyUse::none) visit(item, path);
    }
  }

  static bool is_standard(DeepSpeedKey const& key, std::string const& path, Json const& given) {
    if (given.is_null() || given == "auto") return true;
    if (key.path == "data_types.grad_accum_dtype" && given == "fp32") return true;
    if (key.standard.empty()) return false;
    Json const standard = Json::parse(key.standard), value = converted(given, path, standard.is_boolean());
    return value.is_number() && standard.is_number() ? value.get<double>() == standard.get<double>()
                                                     : value == standard;
  }

  void unknown(std::string const& path, std::string const& above) {
    // A file with max_refusals errors is probably not a configuration. The search for similar keys is slow,
    // so it is skipped for such a file and for very long keys.
    if (refusals_.size() >= max_refusals || path.size() > 200)
      return refuse_key(path, "is not a key of DeepSpeed");
    Names others, all;
    for (DeepSpeedKey const& key : deepspeed_keys()) {
      if (key.path.find('*') != key.path.npos) continue;
      all.emplace_back(key.path);
      std::size_t const dot = key.path.rfind('.');
      if ((dot == key.path.npos ? std::string_view() : key.path.substr(0, dot)) == above)
        others.emplace_back(key.path);
    }
    std::string const meant = nearest(path, all);
    bool const close = edit_distance(path, meant) <= 3 || others.empty();
    refuse_key(path, "is not a key of DeepSpeed, the nearest is " +
                         (close ? meant : nearest(path, others) + "; leave it out if you mean another one"));
  }

  static std::string shown(Json const& value) {
    return files::printable(value.dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 60));
  }
  void refuse_key(std::string const& path, std::string const& text) {
    refusals_.push_back(files::printable(path.substr(0, 200)) + " " + text);
  }
  /// Returns whether the value is probably a misspelled "auto".
  static bool is_like_auto(Json const& value) {
    return value.is_string() && edit_distance(lower(value.get<std::string>()), "auto") <= 1;
  }
  void refuse_value(std::string_view path, std::string const& advice) {
    bool const like_auto = is_like_auto(*at(path));
    refuse_key(std::string(path), "is " + shown(*at(path)) +
                                      (like_auto ? ", the nearest is \"auto\", in lowercase" : "") + advice);
  }
  void without_effect(std::string const& path, std::string why) {
    why.erase(std::remove(why.begin(), why.end(), '`'), why.end());
    auto found = std::find_if(without_effect_.begin(), without_effect_.end(),
                              [&](auto const& entry) { return entry.first == why; });
    if (found == without_effect_.end()) found = without_effect_.insert(found, {why, {}});
    found->second.push_back(path);
  }
  void note(std::string const& path, std::string const& text) { run_.notes.push_back(path + ": " + text); }

  // ---- values

  Json const* at(std::string_view path) const {
    Json const* value = &json_;
    while (true) {
      std::size_t const end = std::min(path.find('.'), path.size());
      if (!value->is_object()) return nullptr;
      auto const found = value->find(std::string(path.substr(0, end)));
      if (found == value->end() || found->is_null()) return nullptr;
      value = &*found;
      if (end == path.size()) return value;
      path.remove_prefix(end + 1);
    }
  }
  bool is_auto(std::string_view path) const { return at(path) != nullptr && *at(path) == "auto"; }
  bool has(std::string_view path) const { return at(path) != nullptr && !is_auto(path); }

  bool boolean(std::string_view path, bool standard = false) {
    if (!has(path)) return standard;
    if (Json const value = converted(*at(path), path, true); value.is_boolean()) return value.get<bool>();
    refuse_value(path, "; give true or false");
    return standard;
  }
  /// Returns the value of a key as a finite number; nullopt if it is not a finite number. Also accepts a list
  /// of one number, because some schedulers have such values.
  std::optional<double> finite(std::string_view path) const {
    Json const& given = *at(path);
    Json const value = converted(given.is_array() && given.size() == 1 ? given[0] : given, path, false);
    if (!value.is_number() || !std::isfinite(value.get<double>())) return std::nullopt;
    return value.get<double>();
  }
  double number(std::string_view path, double standard, Range const& range = at_least(0.0)) {
    if (!has(path)) return standard;
    if (auto const value = finite(path); value && range.holds(*value)) return *value;
    refuse_value(path, "; give " + range.text());
    return standard;
  }
  /// Returns the value of a key as an integer. Also accepts a float with an integral value, such as 5e8.
  std::int64_t integer(std::string_view path, std::int64_t standard, std::int64_t min, std::int64_t max) {
    if (!has(path)) return standard;
    Range const range{static_cast<double>(min), static_cast<double>(max)};
    if (auto const value = finite(path); value && range.holds(*value) && *value == std::floor(*value))
      return *value >= 0x1p63 ? INT64_MAX : static_cast<std::int64_t>(*value);
    refuse_value(path, "; give a whole number" +
                           (max >= std::int64_t{1} << 40
                                ? ", " + std::to_string(min) + " or more"
                                : " from " + std::to_string(min) + " to " + std::to_string(max)));
    return standard;
  }
  std::string word(std::string_view path, std::string const& standard, Names const& choices) {
    if (!has(path)) return standard;
    std::string const value = at(path)->is_string() ? lower(at(path)->get<std::string>()) : std::string();
    if (std::find(choices.begin(), choices.end(), value) != choices.end()) return value;
    bool const like_auto = is_like_auto(*at(path));
    refuse_value(path, (like_auto ? std::string() : ", the nearest is " + nearest(value, choices)) +
                           "; choose from " + joined(choices));
    return standard;
  }
  std::string text(std::string_view path, std::string const& standard) {
    if (!has(path)) return standard;
    if (at(path)->is_string()) {
      std::string const value = at(path)->get<std::string>();
      if (value.find('\0') == value.npos) return value;
    }
    refuse_value(path, "; give a string");
    return standard;
  }
  /// Returns the value of a key, a loss scale, as `number` does. Refuses a value that is not a power of two.
  double power_of_two(std::string_view path, double standard) {
    double const value = number(path, standard, {.min = 0x1p-60, .max = 0x1p100});
    int exponent = 0;
    if (std::frexp(value, &exponent) == 0.5) return value;
    refuse_key(std::string(path),
               "is " + shown(*at(path)) + ", but loss scales must be powers of two; give " +
                   exact(std::ldexp(0.5, exponent)) + " or " + exact(std::ldexp(1.0, exponent)));
    return standard;
  }

  // ---- flags

  /// Sets a flag to `value`, which is the value of the key at `path` or its default. Sets nothing if the key
  /// is "auto"; the program then chooses the value.
  void set(std::string const& flag, std::string const& value, std::string const& path) {
    if (is_auto(path)) return;
    run_.settings.push_back({flag, {value}, said_by(path) + (at(path) == nullptr ? " (default)" : "")});
  }
  std::string said_by(std::string const& path) const {
    return name_.substr(name_.rfind('/') + 1) + ": " + path;
  }
  void set(std::string const& flag, double value, std::string const& path) { set(flag, exact(value), path); }
  void set_integer(std::string const& flag, std::int64_t value, std::string const& path) {
    set(flag, std::to_string(value), path);
  }

  /// Sets the trainer options that have a key in this section. The legal range is the option's range in
  /// option_table. A missing key has DeepSpeed's default.
  void set_options(std::string_view section) {
    for (Option const& option : option_table) {
      std::string const path(option.deepspeed);
      std::size_t const dot = path.rfind('.');
      if (path.empty() || std::string_view(path).substr(0, dot == path.npos ? 0 : dot) != section) continue;
      Json const standard = Json::parse(find_deepspeed_key(path)->standard);
      Names const choices = choices_of(option);
      TrainerOptions options;
      if (!choices.empty())
        set(flag_of(option), word(path, standard.get<std::string>(), choices), path);
      else if (option.in(options).type() == OptionValue::Type::real)
        set(flag_of(option), number(path, standard.get<double>(), range_of(option)), path);
      else
        set_integer(flag_of(option),
                    integer(path, standard.get<std::int64_t>(), static_cast<std::int64_t>(option.min),
                            static_cast<std::int64_t>(option.max)),
                    path);
    }
  }

  void batch() {
    constexpr char all[] = "train_batch_size", micro[] = "train_micro_batch_size_per_gpu",
                   steps[] = "gradient_accumulation_steps";
    constexpr std::int64_t max_global = (std::int64_t{1} << 31) - 1;
    std::int64_t const global = integer(all, 0, 1, max_global), each = integer(micro, 0, 1, 1 << 30),
                       accumulation = integer(steps, 1, 1, 16384);
    bool const global_on_line = on_line_("--global-batch") != nullptr,
               batch_on_line = on_line_("--batch") != nullptr,
               accumulation_on_line = on_line_("--accumulation") != nullptr;
    bool const nothing = at(all) == nullptr && at(micro) == nullptr;
    if (nothing && !global_on_line && !batch_on_line)
      refuse_key(all, "and train_micro_batch_size_per_gpu are both missing; give one of them");
    // Flags on the command line override the file. If flags and file together give all three values, one
    // value of the file is ignored. The program computes this value from the other two.
    bool const knows_global = has(all) || global_on_line, knows_batch = has(micro) || batch_on_line;
    bool const some_on_line = global_on_line || batch_on_line || accumulation_on_line;
    bool const drops_accumulation = some_on_line && knows_global && knows_batch && !accumulation_on_line;
    bool const drops_global = accumulation_on_line && knows_batch && has(all) && !global_on_line;
    if (has(all) && !drops_global) set_integer("--global-batch", global, all);
    if (has(micro)) set_integer("--batch", each, micro);
    if (has(steps) ? !drops_accumulation : has(all) && !knows_batch && at(steps) == nullptr)
      set_integer("--accumulation", accumulation, steps);
  }

  void optimizer() {
    std::string const params = "optimizer.params.";
    bool const given = at("optimizer") != nullptr;
    std::string const type = word("optimizer.type", "adamw", {"adam", "adamw"});
    bool const decoupled = boolean(params + "adam_w_mode", true) || type == "adamw";
    double const standard_decay = boolean(params + "torch_adam") && decoupled ? 0.01 : 0.0;
    rate_ = number(params + "lr", 1e-3);
    double const decay = number(params + "weight_decay", standard_decay);
    double beta1 = 0.9, beta2 = 0.999;
    if (has(params + "betas")) {
      Json const& betas = *at(params + "betas");
      auto const is_beta = [](Json const& beta) {
        return beta.is_number() && beta.get<double>() >= 0.0 && beta.get<double>() < 1.0;
      };
      if (betas.is_array() && betas.size() == 2 && is_beta(betas[0]) && is_beta(betas[1])) {
        beta1 = betas[0].get<double>();
        beta2 = betas[1].get<double>();
      } else {
        refuse_key(params + "betas", "is " + shown(betas) + "; give two numbers from 0 to below 1");
      }
    }
    if (given) {
      set("--optimizer", decoupled ? "adamw" : "adam",
          type == "adamw" ? "optimizer.type" : params + "adam_w_mode");
      set("--beta1", beta1, params + "betas");
      set("--beta2", beta2, params + "betas");
      set_options("optimizer.params");
      set("--weight-decay", decay, params + "weight_decay");
    } else {
      note("optimizer", "missing, so the flags choose it; DeepSpeed uses the one that a program makes");
    }
    run_.decays = !given || is_auto(params + "weight_decay") || decay > 0.0;
    scheduler(given);
    set_options("");
    if (at("gradient_clipping") == nullptr)
      note(
          "gradient_clipping",
          "missing, so 1.0, DeepSpeed's default since 0.19.4; write 0.0 for the default of earlier versions");
  }

  void scheduler(bool optimizer_given) {
    std::string const params = "scheduler.params.";
    std::string const lr = "optimizer.params.lr";
    auto const set_rate = [&](double value, std::string const& path) {
      if (optimizer_given || path != lr) set("--learning-rate", value, path);
    };
    std::string const type = word("scheduler.type", "", {"warmuplr", "warmupdecaylr", "warmupcosinelr"});
    if (type.empty()) return set_rate(rate_, lr);
    bool const cosine = type == "warmupcosinelr", decay = type == "warmupdecaylr";
    std::string const highest = params + "warmup_max_lr";
    bool const own = !cosine && (has(highest) || (decay && at(highest) == nullptr));
    if (own) rate_ = number(highest, 1e-3);
    set_rate(rate_, own ? highest : lr);
    if (Names const* const rate = on_line_("--learning-rate"); rate != nullptr && cosine)
      rate_ = parse_real("--learning-rate", rate->back(), at_least(0.0));  // --first-rate is relative to it
    set("--schedule", type, "scheduler.type");
    std::string const first = params + (cosine ? "warmup_min_ratio" : "warmup_min_lr");
    double const lowest = number(first, 0.0);
    set("--first-rate", cosine ? lowest * rate_ : lowest, first);
    set_options("scheduler.params");
    if (cosine) set("--final-fraction", number(params + "cos_min_ratio", 1e-4), params + "cos_min_ratio");
    std::string const total = params + "total_num_steps";
    if (type == "warmuplr") return;
    if (has(total)) set_integer("--schedule-steps", integer(total, 1, 1, std::int64_t{1} << 40), total);
    if (at(total) == nullptr && on_line_("--schedule-steps") == nullptr)
      refuse_key(total,
                 "is missing, and " + at("scheduler.type")->get<std::string>() +
                     " needs it; give the steps of the schedule, or \"auto\" for the steps of the run");
  }

  void precision() {
    bool const old = at("bf16") == nullptr && at("bfloat16") != nullptr;
    std::string const bf16_key = old ? "bfloat16.enabled" : "bf16.enabled";
    bool const is_fp16 = boolean("fp16.enabled"), is_bf16 = boolean(bf16_key);
    if (is_fp16 && is_bf16) refuse_key("fp16.enabled", "and " + bf16_key + " are both true; choose one");
    bool const open = is_auto("fp16.enabled") || is_auto(bf16_key);
    precision_ = is_fp16 ? "fp16" : is_bf16 ? "bf16" : "fp32";
    bool overruled = false;
    for (char const* flag : {"--bf16", "--fp16", "--precision"}) overruled |= on_line_(flag) != nullptr;
    if (!overruled && (is_fp16 || is_bf16 || !open))
      set("--precision", precision_, is_bf16 ? bf16_key : "fp16.enabled");
    std::string const wire = word("communication_data_type", "",
                                  {"fp32", "fp16", "bf16", "bfp16", "float32", "float16", "bfloat16"});
    std::string const sent = wire.find('b') == 0 ? "bf16" : wire.find("16") != wire.npos ? "fp16" : "fp32";
    if (!wire.empty() && !overruled && !open && sent != precision_)
      refuse_key("communication_data_type", "is " + wire +
                                                ", but gradients are sent in the format of the products, " +
                                                precision_ + " here; leave it out");
    // If a flag selects fp16 and the file selects no other format, the loss-scale keys of the file apply.
    Names const* const precision = on_line_("--precision");
    bool const flag_half =
        on_line_("--fp16") != nullptr || (precision != nullptr && *precision == Names{"fp16"});
    scale(overruled ? flag_half && (is_fp16 || is_auto("fp16.enabled")) : is_fp16);
  }

  void scale(bool is_fp16) {
    // DeepSpeed checks only that unused keys are numbers, not their range.
    bool const is_static = number("fp16.loss_scale", 0.0) > 0.0, dynamic = is_fp16 && !is_static;
    std::int64_t const power = integer("fp16.initial_scale_power", 16, 0, 100);
    std::int64_t const window = integer("fp16.loss_scale_window", 1000, dynamic, std::int64_t{1} << 40);
    std::int64_t const hysteresis = integer("fp16.hysteresis", 2, 1, std::int64_t{1} << 30);
    bool const consecutive = boolean("fp16.consecutive_hysteresis");
    double const minimum =
        dynamic ? power_of_two("fp16.min_loss_scale", 1.0) : number("fp16.min_loss_scale", 1.0);
    if (!is_fp16) return;
    if (is_static) {
      double const fixed = power_of_two("fp16.loss_scale", 1.0);
      set("--loss-scale", "static", "fp16.loss_scale");
      set("--initial-loss-scale", fixed, "fp16.loss_scale");
      set("--min-loss-scale", fixed, "fp16.loss_scale");
      set("--max-loss-scale", fixed, "fp16.loss_scale");
      return;
    }
    set("--initial-loss-scale", std::ldexp(1.0, static_cast<int>(power)), "fp16.initial_scale_power");
    set("--max-loss-scale", 0x1p100, "fp16.enabled");  // DeepSpeed has no maximum
    set("--loss-scale-window", std::to_string(window), "fp16.loss_scale_window");
    set("--loss-scale-delay", "1", "fp16.enabled");
    if (minimum > std::ldexp(1.0, static_cast<int>(power)))
      refuse_key("fp16.min_loss_scale", "is above 2 to the power of fp16.initial_scale_power; lower it");
    set("--min-loss-scale", minimum, "fp16.min_loss_scale");
    if (integer("zero_optimization.stage", 0, 0, 3) == 0) {
      if (has("fp16.hysteresis"))
        note("fp16.hysteresis",
             "no effect in stage 0, as in DeepSpeed, whose optimizer without ZeRO ignores it");
      return;
    }
    set_integer("--hysteresis", hysteresis, "fp16.hysteresis");
    if (consecutive)
      run_.settings.push_back({"--consecutive-hysteresis", {}, said_by("fp16.consecutive_hysteresis")});
  }

  void zero() {
    std::string const zero = "zero_optimization.";
    std::int64_t const stage = integer(zero + "stage", 0, 0, 3);
    set_integer("--stage", stage, zero + "stage");
    Names const devices = {"none", "cpu", "nvme"};
    bool const old_optimizer = boolean(zero + "cpu_offload"),
               old_parameters = boolean(zero + "cpu_offload_param");
    std::string optimizer_key = zero + "offload_optimizer.device",
                parameters_key = zero + "offload_param.device";
    std::string optimizer = word(optimizer_key, "none", devices),
                parameters = word(parameters_key, "none", devices);
    if (old_optimizer && at(zero + "offload_optimizer") == nullptr) {
      optimizer = "cpu";
      optimizer_key = zero + "cpu_offload";
    }
    if (old_parameters && at(zero + "offload_param") == nullptr) {
      parameters = "cpu";
      parameters_key = zero + "cpu_offload_param";
    }
    if (parameters != "none" && stage < 3) {
      note(parameters_key, "no effect in stage " + std::to_string(stage) +
                               ", as in DeepSpeed, which offloads parameters only in stage 3");
      parameters = "none";
    } else if (parameters != "none" && optimizer == "none") {
      refuse_key(parameters_key, "is " + parameters + ", but the optimizer stays on the device; give " +
                                     zero + "offload_optimizer.device too");
    }
    if (optimizer != "none" && stage == 0)
      refuse_key(optimizer_key,
                 "is " + optimizer +
                     " in stage 0, but DeepSpeed offloads only in stages 1 to 3; write one of these stages");
    std::string const offload = optimizer == "none"    ? "none"
                                : parameters == "none" ? optimizer + "_optimizer"
                                : optimizer == "cpu" ? (parameters == "cpu" ? "cpu_full" : "nvme_parameters")
                                                     : (parameters == "cpu" ? "infinity" : "nvme");
    set("--offload", offload, parameters == "none" ? optimizer_key : parameters_key);
    nvme_path(zero, optimizer == "nvme", parameters == "nvme");
    if (has(zero + "overlap_comm"))
      set("--prefetch", boolean(zero + "overlap_comm") ? "1" : "0", zero + "overlap_comm");
    if (std::int64_t const shard = integer(zero + "mics_shard_size", -1, -1, 1 << 20); shard > 0)
      mics(zero + "mics_shard_size", shard);
    constexpr std::int64_t max = INT64_MAX;
    std::int64_t const persistence = integer(zero + "stage3_param_persistence_threshold", 100000, 0, max);
    run_.persistent_elements = integer(zero + "stage3_model_persistence_threshold", max, 0, max);
    if (stage == 3 && !is_auto(zero + "stage3_param_persistence_threshold")) run_.persistence = persistence;
  }

  void nvme_path(std::string const& zero, bool optimizer, bool parameters) {
    std::string const one = zero + "offload_optimizer.nvme_path", other = zero + "offload_param.nvme_path";
    std::string const first = text(one, ""), second = text(other, "");
    if (optimizer && parameters && !first.empty() && !second.empty() && first != second)
      refuse_key(other, "differs from " + one + "; a rank has one file, so give the same folder");
    if (optimizer && !first.empty())
      set("--nvme-path", first, one);
    else if (parameters && !second.empty())
      set("--nvme-path", second, other);
  }

  void mics(std::string const& path, std::int64_t shard) {
    Names const* const ranks = on_line_("--ranks");
    std::int64_t world = 1;
    if (ranks != nullptr) world = parse_integer("--ranks", ranks->front(), 1, 1 << 20);
    if (world % shard != 0)
      return refuse_key(
          path, "is " + std::to_string(shard) + ", which does not divide --ranks " + std::to_string(world));
    set("--mesh", "replicate=" + std::to_string(world / shard) + ",shard=" + std::to_string(shard), path);
  }

  void rest() {
    if (has("steps_per_print"))
      set_integer("--print-every", integer("steps_per_print", 10, 1, std::int64_t{1} << 40),
                  "steps_per_print");
    run_.prints_settings = boolean("dump_state");
    if (boolean("flops_profiler.enabled"))
      note("flops_profiler.enabled", "compare counts the matrix products of a step: mfu_pct");
    if (boolean("comms_logger.enabled"))
      note("comms_logger.enabled", "compare measures communication, and plan --schedule lists it");
    if (has("activation_checkpointing.number_checkpoints")) {
      std::string const path = "activation_checkpointing.number_checkpoints";
      (void)integer(path, 1, 1, 1 << 30);
      set("--recompute", "block", path);
      note(path, "every block has one checkpoint, for every value");
    } else if (at("activation_checkpointing") != nullptr) {
      note("activation_checkpointing", "does not turn checkpointing on; --recompute block does");
    }
    auto const folder = [&](std::string const& section) {
      std::string const above = text(section + ".output_path", ""),
                        job = text(section + ".job_name", "DeepSpeedJobName");
      return above.empty() || above.back() == '/' ? above + job : above + "/" + job;
    };
    std::string const board = folder("tensorboard"), csv = folder("csv_monitor"),
                      project = text("wandb.project", "deepspeed");
    if (boolean("tensorboard.enabled")) set("--tensorboard", board, "tensorboard.enabled");
    if (boolean("wandb.enabled")) {
      if (!boolean("tensorboard.enabled")) set("--tensorboard", "wandb/" + project, "wandb.enabled");
      note("wandb.enabled",
           "event files are written, but not sent; docs/how-to/weights-and-biases.md has the lines that send "
           "them");
    }
    if (boolean("csv_monitor.enabled")) {
      set("--log", csv + ".jsonl", "csv_monitor.enabled");
      note("csv_monitor.enabled", "the log has one JSON object per step, not CSV");
    }
  }

  static constexpr std::size_t max_refusals = 20;  // how many errors the message lists

  Json const json_;
  std::string const& name_;
  OnLine const& on_line_;
  DeepSpeedRun run_;
  Names refusals_;
  std::vector<std::pair<std::string, Names>> without_effect_;  ///< reasons, each with its ignored keys
  double rate_ = 1e-3;
  std::string precision_;
};

}  // namespace

DeepSpeedRun read_deepspeed(std::string_view text, std::string const& name, OnLine const& on_line) {
  return Reader(parse_config(text, name), name, on_line).read();
}

}  // namespace cli
}  // namespace programs
