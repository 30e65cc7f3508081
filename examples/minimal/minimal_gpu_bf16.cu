// SPDX-License-Identifier: Apache-2.0
// Trains a small GPT-2 in bfloat16 on one GPU. Run this program as minimal_gpu_bf16 [FILE OR FOLDER]; the
// argument is the training text.
#include <exception>
#include <iostream>

#include <tessera/cuda.cuh>

namespace ts = tessera;
using Run = ts::Trainer<ts::Gpt2, ts::On<ts::Cuda>, ts::Precision<ts::bfloat16>>;

int main(int argc, char** argv) try {
  ts::Gpt2 model({.layers = 2, .heads = 4, .channels = 64, .positions = 64, .vocabulary = 256});
  Run trainer(model, ts::comm::Comm(), {.learning_rate = 3e-3, .clip = 1.0});
  auto batches = ts::data::tokens(argc > 1 ? argv[1] : ts::default_data_path, {.batch = 8, .sequence = 64});

  double first = 0.0, last = 0.0;
  for (auto const& batch : batches) {
    ts::StepReport step = trainer.step(batch);  // the report of a step waits until the GPU has ended the step
    if (step.step % 10 == 1) std::cout << step << '\n';
    (step.step == 1 ? first : last) = step.loss;
    if (step.step == 50) break;
  }
  return last < first - 1.0 ? 0 : 1;
} catch (std::exception const& error) {
  std::cerr << "error: " << error.what() << '\n';
  return 1;
}
