// SPDX-License-Identifier: Apache-2.0
// Trains a small GPT-2 twice on three ranks: with classic data parallelism, where only rank 0 updates the
// weights, and with ZeRO stage 1. The losses of the two trainings must be equal to the bit. Run this program
// as minimal_data_parallel [FILE OR FOLDER]; the argument is the training text.
#include <exception>
#include <iostream>
#include <vector>

#include <tessera/tessera.hpp>

namespace ts = tessera;

template <class Sharding>
std::vector<double> losses(ts::TokenSource const& source, int ranks, int steps) {
  std::vector<double> losses;
  ts::run(ranks, [&](ts::comm::Comm comm) {
    ts::Gpt2 model({.layers = 2, .heads = 4, .channels = 64, .positions = 64, .vocabulary = 256});
    ts::Trainer<ts::Gpt2, Sharding> trainer(model, comm, {.learning_rate = 3e-3, .batch = 2, .sequence = 64});
    ts::Loader loader(source, {.batch = 2, .sequence = 64, .rank = comm.rank(), .world = comm.world()});
    for (int index = 0; index < steps; ++index) {
      ts::StepReport step = trainer.step(loader.load(index));
      if (comm.is_root()) losses.push_back(step.loss);
    }
  });
  return losses;
}

int main(int argc, char** argv) try {
  auto const source = ts::TokenSource::open(argc > 1 ? argv[1] : ts::default_data_path);
  auto const root = losses<ts::RootOptimizer>(source, 3, 30),
             sharded = losses<ts::ZeroStage<1>>(source, 3, 30);
  std::cout << "root optimizer " << root.front() << " -> " << root.back() << ", stage 1 " << sharded.back()
            << '\n';
  return root == sharded && root.back() < root.front() - 1.0 ? 0 : 1;
} catch (std::exception const& error) {
  std::cerr << "error: " << error.what() << '\n';
  return 1;
}
