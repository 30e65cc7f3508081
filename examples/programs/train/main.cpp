// SPDX-License-Identifier: Apache-2.0
// The program `train`. It trains one model under one recipe, which is a set of policies such as the sharding
// and the precision.
#include <filesystem>
#include <iostream>

#include "cli/command_line.hpp"
#include "cli/program.hpp"
#include "config/config_file.hpp"
#include "config/deepspeed_keys.hpp"
#include "machine/gpus.hpp"
#include "train/settings.hpp"
#include "train/training.hpp"

namespace cli = programs::cli;

namespace {

constexpr char examples[] =
    "Examples:\n"
    "  train                                       100 steps of a small model on the default texts\n"
    "  train --data book.txt --steps 1000 --log run.jsonl --save book.safetensors\n"
    "  train --ranks 4 --stage 2 --precision bf16 --global-batch 32 --clip 1\n"
    "  train --model gpt2 --init gpt2.safetensors --data tokens.bin --sequence 256 --batch 2 \\\n"
    "        --schedule cosine --warmup-steps 20 --learning-rate 3e-5 --epochs 1\n"
    "  train --data reviews.jsonl --samples-are records --samples 1000 --epochs 2\n"
    "  train --steps 0 --save start.safetensors    the initial weights of a seed\n"
    "  train --model ./gpt2 --tokenizer ./gpt2 --data book.txt       a folder with Hugging Face files\n"
    "  train --checkpoint run --checkpoint-every 100 --resume        stop and go on at any time\n"
    "  train --config ds_config.json --ranks 4     a DeepSpeed configuration; --print-config shows its "
    "meaning\n"
    "  train --from compare.json --best            repeat the fastest row of a comparison\n"
    "An interrupted run ends after its step. It then writes the files of --checkpoint, --save and\n"
    "--save-adapter. Without these flags it saves nothing. If the reader of its output is gone and it\n"
    "writes no file, it ends after its step with exit code 141.\n";

/// Prints a warning if the weights come from a folder with a tokenizer, but text is read as bytes.
void warn_of_tokenizer(cli::Settings const& settings) {
  std::filesystem::path const& folder = settings.init.empty() ? settings.model.folder : settings.init;
  if (!settings.data.tokenizer.empty() || !settings.source ||
      settings.source->format() != tessera::TokenFormat::bytes || !programs::text::Tokenizer::is_in(folder))
    return;
  std::cerr << "warning: the folder " << tessera::files::path_text(folder)
            << " holds a tokenizer, but --tokenizer was not given, so the text is read as bytes; give "
               "--tokenizer "
            << cli::in_shell(tessera::files::path_text(folder)) << std::endl;
}

int train(int argc, char const* const* argv) {
  cli::CommandLine line("train", "Trains one model under one recipe.", examples);
  cli::TrainFlags flags;
  cli::declare(line, flags);
  if (!line.parse(argc, argv)) return 0;
  if (flags.deepspeed_keys) {
    std::cout << cli::deepspeed_keys_page();
    return 0;
  }
  cli::join_launch(line, flags.launch);
  cli::Settings settings = cli::resolve(line, flags);
  cli::Names const differences = line.given("--config")
                                     ? cli::deepspeed_differences(flags.file.deepspeed, settings.units())
                                     : cli::Names();
  if (flags.file.print || (flags.file.deepspeed.prints_settings && !settings.quiet)) {
    auto derived = cli::derived_flags(settings);
    // --bf16 or --fp16 sets the precision already
    if (line.given("--bf16") || line.given("--fp16")) derived["--precision"] = "";
    std::cout << line.settings_text(derived);
  }
  if (flags.file.print || !settings.quiet) cli::print_notes(std::cout, flags.file, differences);
  if (flags.file.print) return 0;
  cli::NvmeFolder const nvme_folder(settings.nvme_path, tessera::uses_files(settings.recipe.placement));
  settings.options.nvme_directory = nvme_folder.path();
  cli::check_free_space_for(settings);
  cli::warn_of_gpus(tessera::device_facts(settings.recipe.device), settings.relation.ranks);
  if (!settings.checkpoints.from && cli::is_first_process()) {
    if (settings.init.empty()) cli::warn_of_random_weights("--model", settings.model);
    warn_of_tokenizer(settings);
  }
  settings.plans = cli::open_product_plans(settings.product_plans, settings.recipe.device);
  settings.quiet = settings.quiet || (!cli::is_first_process() && flags.launch.log_ranks.empty());
  if (!settings.quiet)
    std::cout << cli::box_of(settings, line).text(cli::Terminal::of(STDOUT_FILENO).width) << std::flush;
  int const code = cli::Training(settings, cli::command_text(argc, argv)).run();
  cli::warn_of_plans(settings.plans.get());
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  return cli::guarded([&] { return train(argc, argv); });
}
