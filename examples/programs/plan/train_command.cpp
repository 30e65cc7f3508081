// SPDX-License-Identifier: Apache-2.0
#include "plan/train_command.hpp"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "tessera/io/file.hpp"
#include "tessera/policy/parse.hpp"

#include "cli/command_line.hpp"
#include "cli/slot_flags.hpp"
#include "cli/values.hpp"

namespace programs {
using namespace tessera;
namespace planning {

namespace {

// Words of a command that the user must replace: the data, if --data was not given, and for several hosts the
// number of the host and the name of host 0.
constexpr char own_text[] = "YOUR_TEXT", host_number[] = "I", first_host[] = "HOST";

/// Returns whether the settings have samples or epochs, so that the training consists of whole epochs.
bool times_epochs(Settings const& settings) {
  return !settings.data.paths.empty() || settings.samples > 0 || settings.epochs > 0;
}

std::string in_shell(cli::Names const& words) {
  std::string text;
  for (std::string const& word : words) text += (text.empty() ? "" : " ") + cli::in_shell(word);
  return text;
}

/// Returns the flags of `train`. If `by_script` is true, leaves out the flags that the script
/// examples/slurm/train.sh gives to `train` itself.
cli::Names train_flags(Planned const& row, Settings const& settings, bool by_script) {
  Point const& point = row.point;
  cli::Names words;
  auto const add = [&](std::string const& flag, auto const& value) {
    words.push_back(flag);
    if constexpr (std::is_integral_v<std::decay_t<decltype(value)>>)
      words.push_back(std::to_string(value));
    else
      words.emplace_back(value);
  };
  add("--model", point.model.name);
  if (settings.hosts == 1) add("--ranks", point.split.ranks);
  add("--batch", point.split.batch);
  add("--sequence", point.sequence);
  if (point.split.accumulation > 1) add("--accumulation", point.split.accumulation);
  if (point.mesh.replicas > 1) add("--mesh", "replicate=" + std::to_string(point.mesh.replicas));
  SlotNames const& names = point.recipe.names;
  for_each_slot([&]<class Slot>(Slot) {
    std::string_view const name = names.*Slot::field;
    if (by_script && (std::is_same_v<Slot, slot::device> || std::is_same_v<Slot, slot::sharding>)) return;
    std::string const flag = cli::slot_flag<Slot>().one;
    // `train` derives the device from its build, so the command names it.
    if (name != Slot::standard(point.recipe) || cli::named_otherwise<Slot>)
      add(flag.substr(0, flag.find(',')), std::string(name));
  });
  if (settings.data.vocabulary > 0) add("--vocabulary", settings.data.vocabulary);
  if (!settings.freeze.empty()) add("--freeze", settings.freeze);
  if (point.recipe.adapters != AdapterKind::none) add("--lora", settings.lora);
  if (settings.trainer.threads > 0) add("--threads", settings.trainer.threads);
  if (row.on(Tier::nvme) > 0 && !settings.limits.nvme_path.empty())
    add("--nvme-path", settings.limits.nvme_path.string());
  // Without --epochs, `plan` times one epoch, but `train` would do its default number of steps.
  if (times_epochs(settings)) {
    words.emplace_back("--data");
    if (settings.data.paths.empty())
      words.emplace_back(own_text);
    else
      words.insert(words.end(), settings.data.paths.begin(), settings.data.paths.end());
    if (settings.data.samples_are != SamplesAre::tokens)
      add("--samples-are", cli::name_of(settings.data.samples_are));
    if (settings.data.field != "text") add("--field", settings.data.field);
    if (settings.data.separator >= 0) add("--separator", settings.data.separator);
    if (settings.samples > 0) add("--samples", settings.samples);
    add("--epochs", std::max<std::int64_t>(1, settings.epochs));
  }
  if (!settings.data.tokenizer.empty()) add("--tokenizer", settings.data.tokenizer);
  if (settings.data.order != Order::shuffled) add("--order", name_of(settings.data.order));
  if (double const rate = settings.trainer.learning_rate; rate != TrainerOptions().learning_rate)
    add("--learning-rate", cli::shortest(rate));
  if (settings.checkpoint_async) {
    if (!by_script) add("--checkpoint", "checkpoints");
    words.emplace_back("--checkpoint-async");
  }
  return words;
}

}  // namespace

std::string train_command(Planned const& row, Settings const& settings) {
  std::string start;
  if (settings.hosts > 1)
    start = "torchrun --nnodes " + std::to_string(settings.hosts) + " --nproc-per-node " +
            std::to_string(row.point.split.ranks / settings.hosts) + " --node-rank " + host_number +
            " --master-addr " + first_host + " --no-python -- ";
  return start + "train " + in_shell(train_flags(row, settings, /*by_script=*/false));
}

std::string slurm_command(Planned const& row, Settings const& settings) {
  Point const& point = row.point;
  return "examples/slurm/train.sh " +
         std::string(info_of(point.recipe.device).on_cores ? "--cpus " : "--gpus ") +
         std::to_string(point.split.ranks) + " --per-node " +
         std::to_string(point.split.ranks / settings.hosts) + " --strategy " +
         std::string(point.recipe.names.sharding) + " -- " +
         in_shell(train_flags(row, settings, /*by_script=*/true));
}

std::string placeholders_text(Settings const& settings) {
  cli::Names parts;
  if (settings.hosts > 1)
    parts = {std::string(host_number) + " by the number of the host, from 0 to " +
                 std::to_string(settings.hosts - 1),
             std::string(first_host) + " by the name of host 0"};
  if (times_epochs(settings) && settings.data.paths.empty())
    parts.push_back(std::string(own_text) + " by the files or folders of your text, or by a token file");
  return parts.empty() ? "" : "  replace " + cli::joined(parts, "; ") + "\n";
}

}  // namespace planning
}  // namespace programs
