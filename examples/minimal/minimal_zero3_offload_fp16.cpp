// SPDX-License-Identifier: Apache-2.0
// Trains a small GPT-2 with ZeRO stage 3 in half precision. The optimizer works on the host, and backward
// recomputes the activations of the blocks. Each of the two ranks computes two micro-batches per step. Run
// this program as minimal_zero3_offload_fp16 [FILE OR FOLDER]; the argument is the training text.
#include <exception>
#include <iostream>

#include <tessera/tessera.hpp>

namespace ts = tessera;
using Run = ts::Trainer<ts::Gpt2, ts::ZeroStage<3>, ts::Precision<ts::half>, ts::Offload<ts::Cpu>,
                        ts::Recompute<ts::Block>>;

int main(int argc, char** argv) try {
  auto const source = ts::TokenSource::open(argc > 1 ? argv[1] : ts::default_data_path);
  double first = 0.0, last = 0.0;
  ts::run(2, [&](ts::comm::Comm comm) {
    ts::Gpt2 model({.layers = 2, .heads = 4, .channels = 64, .positions = 64, .vocabulary = 256});
    Run trainer(model, comm,
                {.learning_rate = 3e-3, .clip = 1.0, .batch = 2, .sequence = 64, .accumulation = 2});
    ts::Loader loader(
        source, {.batch = 2, .sequence = 64, .accumulation = 2, .rank = comm.rank(), .world = comm.world()});
    for (int index = 0; index < 50; ++index) {
      ts::StepReport step = trainer.step(loader.load(index));
      if (!comm.is_root()) continue;
      // if the step was skipped, the printed line names the tensor that overflowed
      if (index % 10 == 0) std::cout << step << '\n';
      (index == 0 ? first : last) = step.loss;
    }
  });
  return last < first - 1.0 ? 0 : 1;
} catch (std::exception const& error) {
  std::cerr << "error: " << error.what() << '\n';
  return 1;
}
