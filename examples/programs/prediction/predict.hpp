// SPDX-License-Identifier: Apache-2.0
// Predicts the time of a recipe's training step on a machine for which the times of entries were measured.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/train/any_trainer.hpp"

#include "cli/command_line.hpp"
#include "cli/values.hpp"
#include "prediction/machine_times.hpp"
#include "workload/matrix.hpp"

namespace programs {
using namespace tessera;
namespace cli {

/// The machine times that the flag `--machine` selects. If the pointer is null, nothing is predicted.
using KnownTimes = std::shared_ptr<MachineTimes const>;

inline void add_machine_flag(CommandLine& line, std::filesystem::path& file) {
  line.path(
      "--machine", "FILE|NAME", file,
      "predict each row's step from the times of a machine: a FILE of info --measure FILE, or a NAME of " +
          joined(MachineTimes::known_names()) +
          ". The NAMEs have no times of disks, so rows on NVMe have no prediction and show -");
}

/// Returns the times that `--machine` names, which is a built-in name or a file. Returns null if `file` is
/// empty. Throws Error(usage) if `file` is both a built-in name and a file, or neither. Throws Error(config)
/// if the times are of another device than `device`; an empty `device` means any device.
inline KnownTimes known_times(std::filesystem::path const& file, std::string const& device) {
  if (file.empty()) return nullptr;
  std::string const text = files::path_text(file);
  std::optional<MachineTimes> known = MachineTimes::known(file.string());
  std::error_code code;
  bool const is_file = std::filesystem::is_regular_file(file, code);
  if (known && is_file)
    refuse("--machine: " + text +
           " is both a machine that comes with the programs and a file in this folder; give ./" + text +
           " for the file, or rename it");
  if (!known && !is_file && !file.has_parent_path())
    refuse("--machine: no machine is called " + in_quotes(text) +
           ", and no file has this name; choose from " + joined(MachineTimes::known_names()) +
           ", or give a file that info --measure FILE wrote");
  if (!known) known = MachineTimes::read(file);
  if (!device.empty() && known->device() != device)
    throw Error(ErrorKind::config, text + " has times of device " + known->device() + ", but --device is " +
                                       device + "; give --device " + known->device() +
                                       ", or measure this one with info --measure FILE --device " + device);
  return std::make_shared<MachineTimes const>(*std::move(known));
}

/// Returns a text with the machine and the origin of its times, for example "measured on AMD EPYC, 2 cores".
inline std::string source_text(MachineTimes const& times) {
  std::string const& source = times.source();
  return source.find(times.machine()) == source.npos ? times.machine() + ", " + source : source;
}
/// Returns the line "times: FILE, ORIGIN", for example "times: machine.json, measured on AMD EPYC, 2 cores".
inline std::string times_text(MachineTimes const& times, std::filesystem::path const& file) {
  return "times: " + files::path_text(file) + ", " + files::printable(source_text(times)) + "\n";
}
/// Returns the line "collectives: LINK, ORIGIN, expected error N%" for rows with several ranks; "" if the
/// machine has no times of collectives.
inline std::string collectives_text(MachineTimes const& times) {
  CollectiveTimes const& of = times.collectives();
  if (of.empty()) return {};
  return "collectives: " + files::printable(of.link) + ", " + files::printable(of.source) +
         ", expected error " + fixed(of.error_pct, 0) + "%\n";
}
/// Returns the line "hosts: ..." for rows with several ranks, which says how many ranks a host has, and names
/// the network between the hosts. `ranks` are the numbers of ranks of the rows.
inline std::string hosts_text(MachineTimes const& times, int hosts, std::vector<int> const& ranks) {
  Names counts;
  for (int const count : ranks) counts.push_back(std::to_string(count / hosts));
  std::string const each =
      joined(counts, " or ") +
      (info_of(device_named(times.device())).on_cores ? " ranks per host" : " GPUs per host");
  if (hosts == 1) return "hosts: 1, with " + each + "; --hosts N divides the ranks over N hosts\n";
  std::string out = "hosts: " + std::to_string(hosts) + ", with " + each;
  if (auto const& network = times.network())
    out += "; network: " + files::printable(network->link) + ", " + files::printable(network->source) +
           ", expected error " + fixed(network->error_pct, 0) + "%";
  return out + "\n";
}
/// Returns the line "host: ..." for rows with offload: the host that the times assume, and its rates; "" if
/// the file has no times of a host.
inline std::string host_text(MachineTimes const& times) {
  auto const rate = [&](char const* what, std::string const& text) {
    double const bytes = times.largest_rate(what);
    return bytes > 0 ? text + " at " + fixed(bytes / 1e9, 1) + " GB/s" : std::string();
  };
  Names parts;
  for (auto const& part : {files::printable(times.host()), rate("host_adamw", "updates AdamW's state"),
                           rate("copy upload", "copies to a GPU"), rate("copy download", "copies back")})
    if (!part.empty()) parts.push_back(part);
  return parts.empty() ? "" : "host: " + joined(parts, ", ") + "; offload depends on these rates\n";
}
/// Returns the text of `source_text` for result files, or null if nothing is predicted.
inline nlohmann::ordered_json machine_source(KnownTimes const& times) {
  return times ? nlohmann::ordered_json(source_text(*times)) : nlohmann::ordered_json(nullptr);
}

struct Prediction {
  std::optional<double> step_s;  ///< seconds of a step; empty: the time of some entry is unknown
  double guessed = 0.0;          ///< fraction of the step in which entries run whose times are guessed
  std::string reason;            ///< the reason if there is no prediction
  bool lacks_times = false;      ///< the reason is that the machine's file has no times of an entry
  std::int64_t tokens = 0;       ///< tokens of a step over all ranks
  int ranks_of_host = 0;         ///< the number of ranks on each host
  /// the expected error of `step_s` in percent, if no more than half of the step is guessed
  double error_pct = 0;
  /// The times of collectives were computed from the data sheet of the link between the devices.
  bool from_link_data = false;

  /// Returns whether entries whose times are guessed run in more than a tenth of the step.
  bool guesses_much() const { return guessed > 0.1; }
  /// Returns whether entries whose times are guessed run in more than half of the step. The error of such a
  /// prediction is unknown, because the expected errors come from steps whose work was measured.
  bool is_mostly_guessed() const { return guessed > 0.5; }
  std::optional<double> tokens_per_second() const {
    return step_s && *step_s > 0 ? std::optional(static_cast<double>(tokens) / *step_s) : std::nullopt;
  }
};

/// Returns the predicted time of a training step of the configuration `point`, which is one row of a
/// comparison. Records the operations of the step without running them. If a prediction is impossible,
/// `reason` of the result says why. The ranks are divided over `hosts` hosts.
inline Prediction predict(Point const& point, TrainerOptions const& options, MachineTimes const& times,
                          int hosts = 1) {
  Prediction prediction;
  prediction.tokens = point.split.global() * point.sequence;
  prediction.ranks_of_host = point.world() / hosts;
  if (point.refusal || !point.model.built) {
    prediction.reason = point.refusal.value_or("the model cannot be made");
    return prediction;
  }
  if (info_of(point.recipe.device).on_cores && options.threads != 0) {
    prediction.reason =
        "the times are for ranks that share the cores equally, but --threads gives another number";
    return prediction;
  }
  if (hosts > 1 && info_of(point.recipe.device).on_cores) {
    prediction.reason = "times of several hosts are predicted only for GPUs";
    return prediction;
  }
  if (times.max_ranks() > 0 && point.world() > times.max_ranks() * hosts) {
    prediction.reason = "a host with " + files::printable(times.machine()) + " has up to " +
                        std::to_string(times.max_ranks()) + " GPUs, but the row has " +
                        std::to_string(point.world()) + " ranks" +
                        (hosts > 1 ? " on " + std::to_string(hosts) + " hosts" : std::string());
    return prediction;
  }
  if (hosts > 1 && !times.network()) {
    prediction.reason =
        "the machine's file has no network between hosts; add \"network\": {\"link\": NAME, \"source\": "
        "TEXT, "
        "\"bytes_per_s\": B, \"latency_s\": S, \"error_pct\": E} to it, where B is the bandwidth of a host's "
        "network divided by its GPUs";
    return prediction;
  }
  bool const several = point.world() > 1;
  prediction.error_pct = std::max(
      {times.error_pct(), several && !times.collectives().empty() ? times.collectives().error_pct : 0.0,
       hosts > 1 ? times.network()->error_pct : 0.0});
  try {
    std::optional<StepPlan> plan;
    std::vector<Cost> const costs = costs_of([&](Recorder& recorder, StepObserver const& observer) {
      plan = record_step(point.model.built, point.recipe, options_of(point, options), 0, point.world(),
                         recorder, observer);
    });
    std::string unknown;
    if (auto const step = times.step(*plan, costs, &unknown, hosts)) {
      prediction.step_s = step->seconds;
      prediction.guessed = step->seconds > 0 ? step->guessed / step->seconds : 0.0;
      prediction.from_link_data = step->from_link_data;
    } else {
      prediction.lacks_times = true;
      prediction.reason =
          "the machine's file has no times of '" + unknown + "'" +
          (unknown.starts_with("copy") ? "" : " in " + std::string(point.recipe.names.precision));
    }
  } catch (std::exception const& error) {
    prediction.reason = error.what();
  }
  return prediction;
}

}  // namespace cli
}  // namespace programs
