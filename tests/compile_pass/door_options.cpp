// SPDX-License-Identifier: Apache-2.0
// Sets one field of each public struct of options or specifications by name. The compiler (with -Wextra) must
// not warn about the fields that are left out.
#include <chrono>

#include <tessera/checkpoint.hpp>
#include <tessera/io/nvme_file.hpp>
#include <tessera/io/records.hpp>
#include <tessera/lora.hpp>
#include <tessera/tessera.hpp>
#include <tessera/train/model_family.hpp>

namespace ts = tessera;

ts::Batch batch() { return {.batch = 4, .sequence = 64}; }
ts::TrainerOptions options() {
  return {.batch = 1,
          .loss_scale = {.initial = 1024.0},
          .lora = {.layers = std::make_shared<std::vector<ts::LoraOptions::Layer>>(
                       1, ts::LoraOptions::Layer{.rank = 4})}};
}
ts::LoaderOptions loader() { return {.sequence = 64}; }
ts::TokenOptions tokens() { return {.vocabulary = 256}; }
ts::RecordOptions records() { return {.field = "text"}; }
ts::RunOptions run() { return {.grace = std::chrono::seconds(1)}; }
ts::CheckpointOptions checkpoint() { return {.part_bytes = 1 << 20}; }
ts::NvmeOptions nvme() { return {.depth = 2}; }
ts::Gpt2Options gpt2() { return {.layers = 2}; }
ts::OptOptions opt() { return {.heads = 2}; }
ts::LlamaOptions llama() { return {.channels = 64}; }
ts::UnitSpec unit() {
  return {.parameters = {{.shape = {2, 3}, .decay = true}},
          .saved = {{.name = "y", .cheap_to_recompute = true}}};
}
ts::nn::AttentionSpec attention() { return {.heads = 2}; }
ts::AdamWOptions adamw() { return {.beta1 = 0.8}; }
ts::StepReport report() { return {.loss = 1.0}; }
ts::SafetensorsSpec tensor() { return {.shape = {2, 3}}; }
ts::ModelFamily family() {
  return {.name = "mine",
          .keys = {{.name = "layers", .max = 10}},
          .models = {{.name = "mine-small", .numbers = {1.0}}},
          .hub = {.numbers = {{.key = "n_layer"}}}};
}

// Trains on two ranks, saves a checkpoint and resumes. This function must also compile without RTTI.
void train(ts::TokenSource const& text) {
  ts::run(2, [&](ts::comm::Comm comm) {
    ts::Trainer<ts::Gpt2, ts::ZeroStage<2>> trainer(ts::Gpt2(gpt2()), comm, options());
    ts::Loader batches(text, loader());
    trainer.step(batches.load(0));
    ts::save_checkpoint(trainer, "folder");
    ts::resume(trainer, "folder");
  });
}
