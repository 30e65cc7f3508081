// SPDX-License-Identifier: Apache-2.0
// Tests the experiments (comparisons that examples/experiments defines). Each experiment has two forms: a
// file with command-line flags of the program `compare`, and C++ types. The two forms of each experiment must
// give the same recipes (combinations of policies) in the same order. Also trains with the recipes that
// engines support.
#include "experiments/experiments.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/plan/support.hpp"

#include "support/runs.hpp"
#include "workload/matrix.hpp"

namespace {

using namespace tessera;
using namespace programs;
using Names = std::vector<std::string>;

std::filesystem::path const folder = TESSERA_EXPERIMENTS;

/// Returns the recipes that the flags file of the experiment `experiment` selects on the device `device`, in
/// the order in which `compare` runs them. If the flags file uses a recipe with several models or sizes, the
/// result has this recipe once.
std::vector<RecipeTable> rows_of(std::string const& experiment, std::string const& device) {
  std::ifstream file(folder / (experiment + ".flags"));
  Names words{"compare", "--device", device};
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    std::istringstream in(line);
    for (std::string word; in >> word;) words.push_back(word);
  }
  REQUIRE(words.size() > 3);
  std::vector<char const*> argv;
  for (std::string const& word : words) argv.push_back(word.c_str());
  cli::MatrixFlags flags;
  cli::CommandLine line("compare", "Reads the flags of an experiment.", "");
  cli::add_matrix_flags(line, flags);
  int steps = 0, warmup = 0, repeat = 0, epochs = 0, samples = 0;
  double min_time = 0.0, learning_rate = 0.0;
  std::string samples_are, published;
  line.integer("--steps", steps, "");
  line.integer("--epochs", epochs, "");
  line.integer("--samples", samples, "");
  line.text("--samples-are", "", samples_are, "");
  line.text("--published", "", published, "");
  line.integer("--warmup", warmup, "");
  line.integer("--repeat", repeat, "");
  line.real("--min-time", min_time, "");
  line.real("--learning-rate", learning_rate, "");
  REQUIRE(line.parse(static_cast<int>(argv.size()), argv.data()));
  std::vector<RecipeTable> recipes;
  for (cli::Point const& point : cli::make_matrix(flags, 0))
    if (std::find(recipes.begin(), recipes.end(), point.recipe) == recipes.end())
      recipes.push_back(point.recipe);
  return recipes;
}

/// Returns the experiment name of a recipe without the number of ranks and the sizes, such as
/// "zs2_fp16_offcpu". The rest tells sharding (ZeRO stage 2), precision and offload.
std::string short_name(RecipeTable const& recipe) {
  std::string name = results::experiment_name({.sharding = std::string(recipe.names.sharding),
                                               .precision = std::string(recipe.names.precision),
                                               .sequence = 1,
                                               .offload = std::string(recipe.names.offload)});
  std::string const shape = "_ranks1_bs1_sl1";
  return name.erase(name.find(shape), shape.size());
}

template <class Device>
void compare_tables() {
  experiments::for_each_experiment<Device>([](std::string const& experiment, auto list) {
    INFO(experiment, " on ", std::string(Device::name));
    std::vector<RecipeTable> const rows = rows_of(experiment, std::string(Device::name));
    std::vector<RecipeTable> types;
    list.for_each([&]<class Run>(std::type_identity<Run>) { types.push_back(Run::recipe); });
    CHECK(types == rows);
  });
}

}  // namespace

TEST_CASE("every experiment is a row of types that equals its row of flags") {
  compare_tables<Cpu>();
  compare_tables<Cuda>();
  std::set<std::string> flags, types;
  for (auto const& file : std::filesystem::directory_iterator(folder))
    if (file.path().extension() == ".flags") flags.insert(file.path().stem().string());
  experiments::for_each_experiment<Cpu>(
      [&](std::string const& experiment, auto) { types.insert(experiment); });
  CHECK(flags == types);
}

TEST_CASE("every recipe of the experiments trains or is refused by its reason") {
  std::set<std::string> seen;
  experiments::for_each_experiment<Cpu>([&](std::string const& experiment, auto list) {
    list.for_each([&]<class Run>(std::type_identity<Run>) {
      if (!seen.insert(to_string(Run::recipe)).second) return;
      INFO(experiment, ", ", short_name(Run::recipe));
      auto const train = [] {
        double first = 0.0, last = 0.0;
        tessera::run(2, [&](comm::Comm comm) {
          TrainerOptions options;
          options.learning_rate = 1e-2;
          options.threads = 1;
          options.nvme_directory = std::filesystem::temp_directory_path().string();
          Run trainer(Gpt2{{.layers = 1, .heads = 1, .channels = 16, .positions = 16, .vocabulary = 32}},
                      comm, options);
          auto const batch = support::make_batch(0, comm.rank(), {2, 1}, 1, 9, 32);
          for (int step = 0; step < 4; ++step) {
            StepReport const report = trainer.step(batch);
            if (comm.is_root()) (step == 0 ? first : last) = report.loss;
          }
        });
        return last < first;
      };
      if (auto const reason = unsupported_reason(Run::recipe))
        CHECK_THROWS_WITH_AS(train(), doctest::Contains(reason->c_str()), Error);
      else
        CHECK(train());
    });
  });
  CHECK(seen.size() >= 30);
}
