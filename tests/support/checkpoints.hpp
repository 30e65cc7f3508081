// SPDX-License-Identifier: Apache-2.0
// Provides the common code of the checkpoint tests: training runs that save a checkpoint and resume with
// other policies, and a function that reads the full tensors of a checkpoint without the library's checkpoint
// reader.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tessera/checkpoint.hpp"
#include "tessera/checkpoint/writer.hpp"
#include "tessera/io/hash.hpp"
#include "tessera/io/safetensors.hpp"
#include "tessera/train/any_trainer.hpp"
#include "tessera/train/gpt2_family.hpp"

#include "support/file_support.hpp"
#include "support/runs.hpp"

namespace support {

/// The policies of a training run, by name (for example, "zs0" is ZeRO stage 0), and how its global batch of
/// six samples is divided over ranks and micro-batches. An empty `capture` selects the default policy.
struct Setting {
  std::string_view sharding = "zs0", offload = "none", precision = "fp32";
  Spread split{1, 6};
  std::string_view device = "cpu", capture = "";
  bool async = false;  ///< also saves a checkpoint while a step runs

  RecipeTable table() const {
    SlotNames names;
    names.device = device;
    names.sharding = sharding;
    names.offload = offload;
    names.precision = precision;
    names.capture = capture;
    names.reduction = "ordered";
    return parse_recipe(names);
  }
};

inline std::string text_of(Setting const& setting) {
  return std::string(setting.sharding) + " " + std::string(setting.precision) + " " +
         std::string(setting.offload) + " on " + std::to_string(setting.split.ranks) + " " +
         std::string(setting.device) + " " + std::string(setting.capture) +
         (setting.async ? ", saved while steps run" : "");
}

/// Reads the checkpoint in `folder` and returns all of its full tensors by name. A weight has the name of its
/// parameter. An optimizer state has the name of its parameter with a suffix, for example
/// "wte.weight.exp_avg".
inline std::map<std::string, std::vector<double>> state_in(std::filesystem::path const& folder) {
  std::map<std::string, std::vector<double>> all;
  for (auto const& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    SafetensorsFile const file = SafetensorsFile::open(entry.path());
    for (SafetensorsEntry const& tensor : file.tensors()) {
      std::size_t const bracket = tensor.name.find('[');
      std::int64_t const begin =
          bracket == std::string::npos ? 0 : std::stoll(tensor.name.substr(bracket + 1));
      std::vector<double>& values = all[tensor.name.substr(0, bracket)];
      auto const end = static_cast<std::size_t>(begin + tensor.elements());
      if (values.size() < end) values.resize(end, -77.0);
      file.read_as(tensor.name, 0,
                   std::span(values)
                       .subspan(static_cast<std::size_t>(begin))
                       .first(static_cast<std::size_t>(tensor.elements())));
    }
  }
  return all;
}

/// The results of a training run: the loss, the gradient norm and the loss scale of each step, whether each
/// step was skipped, and all tensors and scalars of the final checkpoint.
struct Trained {
  std::vector<double> losses, norms, scales;
  std::vector<bool> skipped;
  std::map<std::string, std::vector<double>> state;
  nlohmann::ordered_json scalars;

  friend bool operator==(Trained const&, Trained const&) = default;
};

inline Run run_of(Setting const& setting) {
  Run run;
  run.split = setting.split;
  run.options.clip = 0.5;
  run.options.loss_scale.initial = 0x1p22;     // so large that the first fp16 steps overflow and are skipped
  run.options.loss_scale.growth_interval = 3;  // so short that the scale grows again
  run.options.schedule = RateShape::linear;
  run.options.total_steps = 20;
  return run;
}

/// Trains from step `first` up to (not including) step `last`, saves a checkpoint to `to`, and returns the
/// results. If `first` is 0, training starts from random weights with a fixed seed. If it is not 0, training
/// resumes from the checkpoint `from`.
inline Trained train_part(Setting const& setting, std::int64_t first, std::int64_t last,
                          std::filesystem::path const& from, std::filesystem::path const& to) {
  Run run = run_of(setting);
  if (setting.async) run.options.checkpoints = CheckpointMemory::snapshot;
  Trained trained;
  run_ranks(setting.table(), setting.split.ranks, [&](comm::Comm comm) {
    auto const trainer = make_trainer(any_model(tiny), setting.table(), comm, options_of(run));
    if (first > 0) {
      CheckpointInfo const info = resume(*trainer, from);
      if (comm.is_root()) CHECK(info.step == first);
    }
    auto const batch = [&](std::int64_t step) {
      return make_batch(step, comm.rank(), run.split, run.batch, run.sequence, run.vocabulary,
                        run.mask_every);
    };
    for (std::int64_t step = first; step < last; ++step) {
      StepReport const report = trainer->step(batch(step));
      if (!comm.is_root()) continue;
      CHECK(report.step == step + 1);
      trained.losses.push_back(report.loss);
      trained.norms.push_back(report.skipped ? -1.0 : report.grad_norm);
      trained.scales.push_back(report.scale);
      trained.skipped.push_back(report.skipped);
    }
    if (!setting.async) return save_checkpoint(*trainer, to);
    AsyncCheckpoint saving;
    saving.save(*trainer, to);
    (void)trainer->step(batch(last)).get();
    saving.wait();
  });
  trained.state = state_in(to);
  trained.scalars = nlohmann::ordered_json::parse(read_checkpoint(to).json)["state"];
  return trained;
}

/// Returns `trained` without the results of its first `steps` steps.
inline Trained after(Trained trained, std::int64_t steps) {
  auto const cut = [&](auto& list) { list.erase(list.begin(), list.begin() + steps); };
  cut(trained.losses);
  cut(trained.norms);
  cut(trained.scales);
  cut(trained.skipped);
  return trained;
}

/// Returns the content of every file in `folder`. The key is the path of the file relative to `folder`.
inline std::map<std::string, std::string> files_in(std::filesystem::path const& folder) {
  std::map<std::string, std::string> files;
  for (auto const& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_regular_file())
      files[entry.path().lexically_relative(folder).string()] = file_support::read(entry.path());
  return files;
}

inline Run run_async(Setting const& setting, CheckpointMemory memory = CheckpointMemory::snapshot) {
  Run run = run_of(setting);
  run.options.checkpoints = memory;
  return run;
}

template <class Trainer>
double step(Trainer& trainer, Run const& run, std::int64_t number, int rank) {
  return trainer
      .step(make_batch(number, rank, run.split, run.batch, run.sequence, run.vocabulary, run.mask_every))
      .get()
      .loss;
}

/// Checks that a checkpoint that is saved while steps run has the same bytes as a checkpoint that is saved
/// between steps. Also checks that saving does not change the losses of the training run.
inline void check_async_save(Setting const& setting, Gpt2Options const& model = tiny) {
  INFO(text_of(setting));
  file_support::TemporaryFolder const folder;
  Run const run = run_async(setting);
  double plain_loss = 0.0, async_loss = 0.0;
  for (bool const saves : {false, true})
    run_ranks(setting.table(), setting.split.ranks, [&](comm::Comm comm) {
      auto const trainer = make_trainer(any_model(model), setting.table(), comm, options_of(run));
      for (int number = 0; number < 3; ++number) (void)step(*trainer, run, number, comm.rank());
      if (saves) save_checkpoint(*trainer, folder / "at once", {.notes = R"({"of": "both"})"});
      // The writer `late` copies the state now and writes it to disk only after two more steps. Its files
      // must equal the files of the checkpoint "at once", which is already complete.
      detail::CheckpointWriter late(trainer->state(), folder / "late", {.notes = R"({"of": "both"})"});
      if (saves) late.begin(true);
      for (int number = 3; number < 5; ++number) (void)step(*trainer, run, number, comm.rank());
      if (saves) {
        late.write([] {});
        if (comm.is_root()) late.name();
        comm.transport().barrier();
        save_checkpoint(*trainer, folder / "at once 5");
      }
      AsyncCheckpoint saving;
      if (saves) saving.save(*trainer, folder / "async 5");
      double const loss = step(*trainer, run, 5, comm.rank());
      if (comm.is_root()) (saves ? async_loss : plain_loss) = loss;
      saving.wait();
      for (Tier const tier : {Tier::device, Tier::host})
        CHECK(trainer->peak_bytes(tier) == trainer->plan().arena_bytes[static_cast<std::size_t>(tier)]);
    });
  CHECK((files_in(folder / "late") == files_in(folder / "at once")));
  CHECK((files_in(folder / "async 5") == files_in(folder / "at once 5")));
  CHECK(plain_loss == async_loss);
}

}  // namespace support
