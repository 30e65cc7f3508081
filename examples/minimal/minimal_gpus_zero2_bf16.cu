// SPDX-License-Identifier: Apache-2.0
// Trains a small GPT-2 with ZeRO stage 2 in bfloat16 on all GPUs of this machine, with one rank for each GPU.
// Run this program as minimal_gpus_zero2_bf16 [FILE OR FOLDER]; the argument is the training text.
#include <exception>
#include <iostream>

#include <tessera/comm/nccl.cuh>
#include <tessera/cuda.cuh>

namespace ts = tessera;
using Run = ts::Trainer<ts::Gpt2, ts::On<ts::Cuda>, ts::ZeroStage<2>, ts::Precision<ts::bfloat16>>;

int main(int argc, char** argv) try {
  auto const source = ts::TokenSource::open(argc > 1 ? argv[1] : ts::default_data_path);
  int const gpus = ts::comm::count_gpus();
  double first = 0.0, last = 0.0;
  ts::run_gpus(gpus, [&](ts::comm::Comm comm) {
    ts::Gpt2 model({.layers = 2, .heads = 4, .channels = 64, .positions = 64, .vocabulary = 256});
    Run trainer(model, comm, {.learning_rate = 3e-3, .batch = 8, .sequence = 64});
    ts::Loader loader(source, {.batch = 8, .sequence = 64, .rank = comm.rank(), .world = comm.world()});
    for (int index = 0; index < 50; ++index) {
      ts::StepReport step = trainer.step(loader.load(index));
      if (!comm.is_root()) continue;
      if (index % 10 == 0) std::cout << step << '\n';
      (index == 0 ? first : last) = step.loss;
    }
  });
  std::cout << gpus << (gpus == 1 ? " GPU" : " GPUs") << ", loss " << first << " -> " << last << '\n';
  return last < first - 1.0 ? 0 : 1;
} catch (std::exception const& error) {
  std::cerr << "error: " << error.what() << '\n';
  return 1;
}
