// SPDX-License-Identifier: Apache-2.0
// Measures the time to compile includes and programs. Each iteration starts the compiler that built this
// benchmark once. Benchmark names: include/<header> for a source file that only includes a header, and
// program/<number of recipes>. The headers are tessera.hpp and, from each folder, the headers that a user
// includes separately. The difference between the program with one recipe (a trainer with its policies) and
// the program with four gives the time of a recipe.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>

#include <benchmark/benchmark.h>

#include "context.hpp"

#if !defined(TESSERA_COMPILE_COMMAND)
#error "define TESSERA_COMPILE_COMMAND: the compiler with its include paths and flags, as one string"
#endif

namespace {

void compile(benchmark::State& state, std::string const& source, std::string const& mode) {
  std::filesystem::path const folder =
      std::filesystem::temp_directory_path() / ("tessera-compile-" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  std::filesystem::path const file = folder / "unit.cpp";
  std::ofstream(file) << source;
  std::string const command = std::string(TESSERA_COMPILE_COMMAND) + " " + mode + " '" + file.string() + "'" +
                              (mode == "-c" ? " -o '" + (folder / "unit.o").string() + "'" : "");
  for (auto _ : state) {
    auto const start = std::chrono::steady_clock::now();
    if (std::system(command.c_str()) != 0) {
      state.SkipWithError("the compiler failed");
      break;
    }
    state.SetIterationTime(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::filesystem::remove_all(folder);
}

void add(std::string const& name, std::string const& source, std::string const& mode) {
  benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) { compile(state, source, mode); })
      ->UseManualTime()
      ->Unit(benchmark::kSecond)
      ->Iterations(1);
}

std::string program(std::string const& trainers) {
  return "#include <tessera/tessera.hpp>\nnamespace ts = tessera;\n"
         "template <class Run> void run() {\n"
         "  Run trainer{ts::Gpt2{}, ts::comm::Comm{}, {.batch = 1, .sequence = 8}};\n"
         "  trainer.step(ts::Batch{});\n}\n"
         "int main() {\n" +
         trainers + "}\n";
}

bool register_all() {
  add("include/none", "int main() {}\n", "-fsyntax-only");
  for (char const* header :
       {"fwd.hpp", "core/shape.hpp", "policy/pack.hpp", "policy/rules.hpp", "policy/parse.hpp",
        "tensor/tensor.hpp", "plan/program.hpp", "ops/linear.hpp", "comm/run.hpp", "nn/gpt2.hpp",
        "optim/adamw.hpp", "data/tokens.hpp", "io/json_lines.hpp", "io/safetensors.hpp",
        "store/parameter_store.hpp", "train/trainer.hpp", "train/any_trainer.hpp", "tessera.hpp"})
    add(std::string("include/") + header, std::string("#include <tessera/") + header + ">\nint main() {}\n",
        "-fsyntax-only");
  std::string const one = "  run<ts::Trainer<ts::Gpt2, ts::ZeroStage<1>>>();\n";
  add("program/one_recipe", program(one), "-c");
  add("program/four_recipes_of_one_type",
      program(one + "  run<ts::Trainer<ts::Gpt2, ts::ZeroStage<2>>>();\n  run<ts::Trainer<ts::Gpt2, "
                    "ts::ZeroStage<3>>>();\n"
                    "  run<ts::Trainer<ts::Gpt2, ts::RootOptimizer, ts::Offload<ts::Cpu>>>();\n"),
      "-c");
  return true;
}

bool const registered = register_all();

}  // namespace
