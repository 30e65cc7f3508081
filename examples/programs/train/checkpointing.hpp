// SPDX-License-Identifier: Apache-2.0
// Handles the checkpoints of the program `train`: the flags, the checkpoint from which a run resumes, and the
// part of the log that a resumed run keeps.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/checkpoint.hpp"
#include "tessera/core/error.hpp"
#include "tessera/data/file_bytes.hpp"
#include "tessera/io/file.hpp"
#include "tessera/io/weights_format.hpp"

#include "cli/command_line.hpp"
#include "cli/launch.hpp"
#include "cli/values.hpp"
#include "workload/data.hpp"

namespace programs {
using namespace tessera;
namespace cli {

/// The values of the checkpoint flags, and the facts that are derived from them.
struct CheckpointSettings {
  std::filesystem::path folder;  ///< empty: no checkpoints
  std::int64_t every = 0;        ///< number of steps between checkpoints; 0: only after the last step
  int keep = 0;                  ///< how many of the newest checkpoints are kept; 0: all
  bool resume = false;
  bool async = false;
  unsigned grace = 0;  ///< seconds that an interrupted run has until it must end; 0: no limit

  /// the checkpoint from which the run resumes; nullopt if the run starts at step 1
  std::optional<CheckpointInfo> from;
  /// step number s reads batch number s + data_shift of the data; data_shift is 0 unless the global batch has
  /// changed
  std::int64_t data_shift = 0;
  std::string config = {};  ///< the contents of the model's config.json

  /// Returns which buffers for checkpoints the memory plan must include.
  CheckpointMemory memory() const {
    if (folder.empty()) return CheckpointMemory::none;
    return async ? CheckpointMemory::snapshot : CheckpointMemory::staging;
  }
  std::int64_t first_step() const { return from ? from->step : 0; }
  /// Returns the sums of loss, seconds and tokens so far in the epoch in which the run resumes. Returns
  /// nullopt if there is no checkpoint, or if the checkpoint does not contain these sums.
  std::optional<EpochSums::Part> epoch() const {
    if (!from) return std::nullopt;
    auto const notes = nlohmann::ordered_json::parse(from->notes);
    auto const part = notes.find("epoch");
    if (part == notes.end() || !part->is_object()) return std::nullopt;
    for (char const* field : {"positions", "unmasked", "seconds", "loss"})
      if (!part->contains(field) || !(*part)[field].is_number()) return std::nullopt;
    return EpochSums::Part{(*part)["positions"], (*part)["unmasked"], (*part)["seconds"], (*part)["loss"]};
  }
};

/// Returns `part`, the sums of the current epoch, as JSON for a checkpoint. CheckpointSettings::epoch reads
/// this JSON when a run resumes.
inline nlohmann::ordered_json part_json(std::optional<EpochSums::Part> const& part) {
  if (!part) return nullptr;
  return {{"positions", part->positions},
          {"unmasked", part->valid_tokens},
          {"seconds", part->seconds},
          {"loss", part->loss}};
}

inline void add_checkpoint_flags(CommandLine& line, CheckpointSettings& flags) {
  line.group("Checkpoints");
  line.path("--checkpoint", "FOLDER", flags.folder,
            "save all state of the run here, in one folder per checkpoint: after the last step, and when a "
            "signal ends the run");
  line.integer("--checkpoint-every", flags.every, "steps between further checkpoints; 0: none", 0,
               std::int64_t{1} << 40);
  line.toggle("--checkpoint-async", flags.async,
              "write checkpoints while the next steps run, from a copy of the state in host memory");
  line.integer("--keep", flags.keep, "number of newest checkpoints to keep; 0: all", 0, 1 << 30);
  line.toggle("--resume", flags.resume,
              "resume from the newest checkpoint in --checkpoint; if there is none, start from step 1");
  line.integer("--grace-period", flags.grace,
               "seconds after SIGTERM, SIGINT or SIGHUP in which the run saves and ends; 0: no limit", 0,
               1u << 20);
}

/// Finds the checkpoint from which the run resumes, and stores it in `settings.from`. Throws Error(usage) if
/// a flag contradicts another flag or the contents of the folder.
inline void resolve_checkpoints(CommandLine const& line, CheckpointSettings& settings) {
  if (settings.folder.empty()) {
    for (char const* flag : {"--checkpoint-every", "--checkpoint-async", "--keep", "--resume"})
      if (line.given(flag)) refuse(std::string(flag) + " needs a folder; give --checkpoint FOLDER");
    return;
  }
  if (is_first_process()) check_writable_folder(settings.folder);
  Checkpoints const series(settings.folder);
  std::optional<std::int64_t> const newest = series.newest();
  if (!newest) {
    if (settings.resume) refuse_pickles_in(settings.folder);
    return;
  }
  if (!settings.resume)
    refuse("--checkpoint '" + files::path_text(settings.folder) + "' holds checkpoints, the newest of step " +
           std::to_string(*newest) + "; give --resume to continue from there, or another folder");
  settings.from = read_checkpoint(series.path(*newest));
}

/// The properties of the data that determine which samples a step reads. These properties must be equal in a
/// run and in the run that resumes it.
struct DataIdentity {
  std::int64_t tokens = 0, sequence = 0;
  std::int64_t samples = 0;  ///< number of samples until the data repeat
  std::string samples_are, order;
  std::uint64_t seed = 0;
  std::int64_t whole_epochs_of = 0;  ///< the global batch if every epoch begins with a new step; else 0

  nlohmann::ordered_json json() const {
    return {{"tokens", tokens},
            {"sequence", sequence},
            {"samples", samples},
            {"samples_are", samples_are},
            {"order", order},
            {"seed", seed},
            {"whole_epochs_of", whole_epochs_of}};
  }
};

/// Checks that the run can continue from its checkpoint, and sets `settings.data_shift`. The data and their
/// order must be the same as in the run that saved the checkpoint. The number of samples read so far must be
/// a multiple of the global batch. Throws Error(config) or Error(data).
inline void continue_data(CheckpointSettings& settings, DataIdentity const& data, std::int64_t global_batch,
                          std::int64_t steps) {
  if (!settings.from) return;
  std::string const name = files::path_text(settings.from->folder);
  std::int64_t const done = settings.from->step;
  if (done > steps)
    throw Error(ErrorKind::config, name + ": is after step " + std::to_string(done) + ", beyond --steps " +
                                       std::to_string(steps) + ", which counts from the start of the run");
  auto const notes = nlohmann::ordered_json::parse(settings.from->notes), now = data.json();
  if (!notes.contains("samples") || !notes.contains("data"))
    throw Error(ErrorKind::data,
                name +
                    ": does not say which data came next, so it was not written by train; start from its "
                    "weights with --init " +
                    name + "/model and without --resume");
  for (auto const& [key, right] :
       {std::pair("data", notes["data"].is_object()), {"samples", notes["samples"].is_number_integer()}})
    if (!right)
      throw Error(
          ErrorKind::data,
          name + ": notes." + key + " is " + files::printable(notes[key].dump(), 60) +
              ", which is not valid; read it with the version of the library that wrote the checkpoint");
  std::string differ;
  for (auto const& [key, value] : now.items())
    if (std::string const before = notes["data"].value(key, nlohmann::ordered_json()).dump();
        before != value.dump())
      differ += (differ.empty() ? "" : ", ") + key + " " + before + " and now " + value.dump();
  if (!differ.empty())
    throw Error(
        ErrorKind::config,
        name + ": was saved with other data, so this data cannot continue at its position: " + differ +
            "; give the same, or start from its weights with --init " + name + "/model in another folder");
  if (data.whole_epochs_of > 0) return;  // whole epochs: the global batch is the same as before
  auto const samples = notes["samples"].get<std::int64_t>();
  if (samples % global_batch != 0)
    throw Error(ErrorKind::config, name + ": is after " + std::to_string(samples) +
                                       " sequences, and no step of a global batch of " +
                                       std::to_string(global_batch) +
                                       " begins there; give --global-batch a divisor of that number");
  settings.data_shift = samples / global_batch - done;
}

/// Returns the number of bytes of the log that a run resumed after `step` keeps. The rest of the file begins
/// with the first line that is incomplete, a summary, or of a later step. Returns nullopt if the file does
/// not exist. Throws Error(data) if the log ends before `step`.
inline std::optional<std::uintmax_t> end_of_log(std::filesystem::path const& path, std::int64_t step) {
  std::error_code code;
  if (path.empty() || !std::filesystem::is_regular_file(path, code)) return std::nullopt;
  std::ifstream file(path, std::ios::binary);
  std::uintmax_t end = 0;
  std::int64_t last = 0;
  for (std::string line; std::getline(file, line) && !file.eof(); end += line.size() + 1) {
    nlohmann::json const parsed = nlohmann::json::parse(line, nullptr, false);
    auto const number = [&](char const* key) {
      auto const at = parsed.is_object() ? parsed.find(key) : parsed.end();
      return at != parsed.end() && at->is_number_integer() ? at->get<std::int64_t>() : 0;
    };
    if (!parsed.is_object() || parsed.contains("summary") || number("step") > step ||
        number("after_step") > step)
      break;
    last = std::max(last, number("step"));
  }
  if (last != step)
    throw Error(ErrorKind::data, files::path_text(path) + ": ends with step " + std::to_string(last) +
                                     ", but the run continues after step " + std::to_string(step) +
                                     "; give --log another file");
  return end;
}

/// Throws if the checkpoints would not fit on their disk until the last step.
inline void check_free_space_for_checkpoints(CheckpointSettings const& settings, std::int64_t parameters,
                                             std::int64_t trained, std::int64_t steps) {
  if (settings.folder.empty()) return;
  std::int64_t count = 1;
  if (settings.every > 0) count += std::max<std::int64_t>(0, steps - settings.first_step()) / settings.every;
  if (settings.keep > 0) count = std::min<std::int64_t>(count, settings.keep + 1);
  std::error_code code;
  std::filesystem::path nearest = std::filesystem::absolute(settings.folder, code);
  while (!std::filesystem::is_directory(nearest, code) && nearest.has_relative_path())
    nearest = nearest.parent_path();
  double const bytes = static_cast<double>(count) * static_cast<double>(4 * parameters + 8 * trained);
  // check_free_space needs the path of a file to find its disk. No file has this name.
  check_free_space({{.path = nearest / ".tessera-checkpoints",
                     .bytes = static_cast<std::int64_t>(std::min(bytes, 0x1p62)),
                     .named = settings.folder}});
}

/// Returns a warning if `batch`, the micro-batch of a resumed run, differs from the micro-batch of the run
/// that saved the checkpoint, since sums then have another order. Returns "" if it does not differ.
inline std::string warning_of_split(CheckpointSettings const& saved, std::int64_t batch) {
  if (!saved.from) return {};
  std::int64_t const before = nlohmann::ordered_json::parse(saved.from->json).value("batch", std::int64_t{0});
  if (before == 0 || before == batch) return {};
  std::string const given = "--batch " + std::to_string(before);
  return "warning: the micro-batch was " + std::to_string(before) + " in " +
         files::path_text(saved.from->folder) + " and is " + std::to_string(batch) +
         " now: from here on the weights can differ in a few bits from a run with " + given + "; give " +
         given + " for equal bits";
}

}  // namespace cli
}  // namespace programs
