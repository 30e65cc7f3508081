// SPDX-License-Identifier: Apache-2.0
// Tests what happens to checkpoints if number formats change, files are damaged, disks fail or ranks die.
// Each fault must give one error that names the file. Training must never continue from a wrong state.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tessera/checkpoint/reader.hpp"
#include "tessera/checkpoint/writer.hpp"
#include "tessera/io/model_weights.hpp"

#include "support/checkpoints.hpp"
#include "support/file_support.hpp"

namespace {

using namespace support;
using file_support::TemporaryFolder;
namespace fs = std::filesystem;

std::map<std::string, std::vector<double>> as_floats(std::map<std::string, std::vector<double>> state) {
  std::erase_if(state, [](auto const& tensor) { return tensor.first.ends_with(".master"); });
  for (auto& [name, values] : state)
    for (double& value : values) value = static_cast<double>(static_cast<float>(value));
  return state;
}

/// Resumes training on two ranks from the checkpoint in `folder`. Returns the error message, which must be
/// equal on both ranks, or an empty string if both ranks resume. Checks that a failed resume leaves the
/// trainer unchanged.
std::string resume_error(fs::path const& folder, Gpt2Options const& model = tiny,
                         TrainerOptions options = {}) {
  std::array<std::string, 2> message;
  Run run = run_of({.split = {2, 3}});
  run.options.freeze = options.freeze;
  tessera::run(2, [&](comm::Comm comm) {
    auto const trainer = make_trainer(any_model(model), recipe("zs2"), comm, options_of(run));
    std::string const before = hash_weights(*trainer);
    try {
      resume(*trainer, folder);
    } catch (Error const& error) {
      CHECK(error.kind() == ErrorKind::data);
      message[static_cast<std::size_t>(comm.rank())] = error.what();
      CHECK(hash_weights(*trainer) == before);
    }
  });
  CHECK(message[0] == message[1]);
  return message[0];
}

void flip_bit(fs::path const& file, std::int64_t at) {
  std::fstream stream(file, std::ios::binary | std::ios::in | std::ios::out);
  stream.seekg(at);
  char const byte = static_cast<char>(stream.get() ^ 4);
  stream.seekp(at);
  stream.put(byte);
  REQUIRE(stream.good());
}

}  // namespace

TEST_CASE("state passes between formats as far as they hold it") {
  for (std::string_view const from : {"fp64", "fp32", "fp16", "bf16"}) {
    TemporaryFolder const folder;
    Setting const before{"zs3", "none", from, {3, 2}};
    Trained const saved = train_part(before, 0, 8, {}, folder / "saved");
    for (std::string_view const to : {"fp64", "fp32", "fp16", "bf16"}) {
      INFO(std::string(from), " -> ", std::string(to));
      Setting const there{"zs1", to == "fp64" ? "none" : "cpu_optimizer", to, {2, 3}};
      Trained const moved = train_part(there, 8, 8, folder / "saved", folder / std::string(to));
      CHECK((as_floats(moved.state) == as_floats(saved.state)));
      if (from == to) CHECK((moved.state == saved.state));
      CHECK(moved.scalars["beta2_power"] == saved.scalars["beta2_power"]);
      double const scale = to != "fp16"     ? 1.0
                           : from == "fp16" ? saved.scalars["loss_scale"].get<double>()
                                            : 0x1p22;
      CHECK(moved.scalars["loss_scale"] == scale);
    }
  }
}

TEST_CASE(
    "fp64 and frozen parameters and rows of replicas are resumed to the bit, weights in several files") {
  Run run = run_of({});
  run.split = {4, 1};
  run.options.freeze = [](std::string_view name) { return name.starts_with("h.0.") || name == "wpe.weight"; };
  for (std::string_view const precision : {"fp64", "bf16"}) {
    TemporaryFolder const folder;
    std::array<std::string, 2> hashes;
    for (bool const broken : {false, true})
      for (int const part : {0, 1}) {
        if (part == 1 && !broken) continue;
        Run now = run;
        now.options.replicas = part == 1 ? 1 : 2;
        tessera::run(4, [&](comm::Comm comm) {
          auto const trainer = make_trainer(any_model(tiny), recipe(part == 1 ? "zs1" : "zs3", precision),
                                            comm, options_of(now));
          if (part == 1) resume(*trainer, folder / "saved");
          for (int step = 4 * part; step < (broken && part == 0 ? 4 : 8); ++step)
            (void)trainer
                ->step(make_batch(step, comm.rank(), now.split, now.batch, now.sequence, now.vocabulary, 5))
                .get();
          if (broken && part == 0) save_checkpoint(*trainer, folder / "saved", {.part_bytes = 20000});
          std::string const hash = hash_weights(*trainer);
          if (comm.is_root()) hashes[broken] = hash;
        });
      }
    CHECK(hashes[0] == hashes[1]);
    CHECK(fs::exists(folder / "saved/model/model.safetensors.index.json"));
    // The folder `model` of a checkpoint is a complete model, which other programs can read.
    ModelWeights::open(folder / "saved/model", Gpt2(tiny).units({1, 1}), gpt2_weight_names());
  }
}

TEST_CASE("a checkpoint that is not whole is named and leaves the trainer as it was") {
  TemporaryFolder const folder;
  fs::path const saved = folder / "saved", spare = folder / "spare";
  (void)train_part({"zs2", "none", "fp32", {3, 2}}, 0, 2, {}, saved);
  CHECK(resume_error(saved).empty());
  fs::copy(saved, spare, fs::copy_options::recursive);
  auto const restore = [&] {
    fs::remove_all(saved);
    fs::copy(spare, saved, fs::copy_options::recursive);
  };
  auto const holds = [](std::string const& text, std::string_view part) {
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
  };
  for (std::string const file : {"model/model.safetensors", "optimizer-0-of-3.safetensors",
                                 "optimizer-2-of-3.safetensors", "trainer.json"}) {
    for (std::int64_t const at :
         {std::int64_t{9}, static_cast<std::int64_t>(fs::file_size(saved / file)) - 40}) {
      flip_bit(saved / file, at);
      holds(resume_error(saved), file);
      restore();
    }
    // Cuts off the last two bytes. The last byte is possibly a line break, and a file without its last line
    // break would still be valid.
    fs::resize_file(saved / file, fs::file_size(saved / file) - 2);
    holds(resume_error(saved), file);
    fs::remove(saved / file);
    holds(resume_error(saved), file);
    restore();
  }
  fs::copy_file(saved / "optimizer-0-of-3.safetensors", saved / "optimizer-0-of-1.safetensors");
  holds(resume_error(saved), "not part of this checkpoint: optimizer-0-of-1.safetensors");
  restore();
  std::string text = file_support::read(saved / "trainer.json");
  text.replace(text.find("\"applied\": 2"), 12, "\"applied\": 3");
  file_support::write(saved / "trainer.json", text);
  holds(resume_error(saved), "trainer.json: does not match its checksum");
  restore();
  // `rewrite` changes the content of trainer.json and corrects its checksum. The changed file looks like a
  // file from another version of the library, not like a damaged file.
  auto const rewrite = [&](auto const& change) {
    auto json = nlohmann::ordered_json::parse(file_support::read(saved / "trainer.json"));
    change(json);
    json.erase("checksum");
    json["checksum"] = hash_of(json.dump());
    file_support::write(saved / "trainer.json", json.dump());
  };
  rewrite([](auto& json) { json["state"].erase("good_steps"); });
  holds(resume_error(saved),
        "trainer.json: has no good_steps; read it with the version of the library that wrote the checkpoint");
  restore();
  rewrite([](auto& json) { json["step"] = "two"; });
  holds(resume_error(saved), "trainer.json: step is \"two\", which is not valid");
  restore();
  for (auto const& [key, value] : {std::pair("adapters", "[1]"), {"batch", "\"2\""}, {"notes", "[]"}}) {
    rewrite([key = key, value = value](auto& json) { json[key] = nlohmann::ordered_json::parse(value); });
    holds(resume_error(saved), "trainer.json: " + std::string(key) + " is " + value + ", which is not valid");
    restore();
  }
  file_support::write(saved / "model/tokenizer.json", "{}");  // files of other programs are allowed
  CHECK(resume_error(saved).empty());

  Gpt2Options other = tiny;
  other.layers = 3;
  holds(resume_error(saved, other), "missing: h.2.");
  other = tiny;
  other.vocabulary = 64;
  holds(resume_error(saved, other), "wte.weight has shape [61, 33], the model needs [64, 33]");
  TrainerOptions frozen;
  frozen.freeze = [](std::string_view name) { return name == "wpe.weight"; };
  holds(resume_error(saved, tiny, frozen), "not needed: wpe.weight.exp_avg");
  holds(resume_error(folder / "none"), "none/trainer.json: no such file");
}

TEST_CASE("bytes of a path that are no UTF-8 do not keep a checkpoint from being written") {
  std::string const text = tessera::detail::with_checksum({{"checkpoint", "runs/\xff"}});
  auto json = nlohmann::ordered_json::parse(text);
  CHECK(json["checkpoint"] == "runs/\xef\xbf\xbd");
  std::string const sum = json["checksum"];
  json.erase("checksum");
  CHECK(hash_of(json.dump()) == sum);
}

TEST_CASE(
    "saving streams: no rank asks for more than a chunk at a time and all of them for each element once") {
  /// Passes all calls on to `inner`, the state of a trainer. Records the largest range that one call
  /// requests, and the sum of the sizes of the ranges that view() returned.
  struct Watched final : StateAccess {
    explicit Watched(StateAccess& inner) : state(inner) {}
    StepPlan const& plan() const override { return state.plan(); }
    TrainerOptions const& options() const override { return state.options(); }
    comm::Transport& transport() const override { return state.transport(); }
    StepState scalars() override { return state.scalars(); }
    void set_scalars(StepState const& scalars) override { state.set_scalars(scalars); }
    std::byte* staging() override { return state.staging(); }
    std::byte const* view(Buffer const& buffer, Range part) override {
      largest = std::max(largest, part.size());
      all += part.size();
      return state.view(buffer, part);
    }
    std::byte* stage(Buffer const& buffer, Range part) override {
      largest = std::max(largest, part.size());
      return state.stage(buffer, part);
    }
    void put(Buffer const& buffer, Range part, std::byte* staged) override {
      state.put(buffer, part, staged);
    }
    void take_snapshot() override {}
    bool has_snapshot() const override { return false; }
    std::byte const* snapshot(Buffer const&, Range) const override { return nullptr; }
    StateAccess& state;
    std::int64_t largest = 0, all = 0;
  };
  Gpt2Options wide = tiny;
  wide.vocabulary = 9000;
  for (std::string_view const sharding : {"zs0", "zs2"}) {
    TemporaryFolder const folder;
    Run run = run_of({.split = {3, 2}});
    std::array<std::int64_t, 3> all{};
    std::int64_t padded = 0;
    tessera::run(3, [&](comm::Comm comm) {
      auto const trainer = make_trainer(any_model(wide), recipe(sharding), comm, options_of(run));
      Watched watched(trainer->state());
      detail::CheckpointWriter(watched, folder / "saved", {}).run();
      detail::CheckpointReader(watched, folder / "saved").run();
      CHECK(watched.largest <= checkpoint_chunk);
      all[static_cast<std::size_t>(comm.rank())] = watched.all;
      if (comm.is_root())
        for (Flat const of : watched.plan().flats()) padded += watched.plan().flat(of).padded;
    });
    CHECK(all[0] + all[1] + all[2] <= 3 * padded);
    CHECK(*std::max_element(all.begin(), all.end()) <= padded + 6 * checkpoint_chunk);
  }
}

TEST_CASE("a save that fails says so on every rank, leaves nothing and the run goes on") {
  TemporaryFolder const folder;
  Run const run = run_of({.split = {2, 3}});
  std::array<std::string, 2> message, infinite, again, noted;
  std::array<std::int64_t, 2> steps{};
  file_support::write(folder / "file", "");
  tessera::run(2, [&](comm::Comm comm) {
    auto const rank = static_cast<std::size_t>(comm.rank());
    auto const trainer = make_trainer(any_model(tiny), recipe("zs3"), comm, options_of(run));
    auto const attempt = [&](fs::path const& path, std::string& text, CheckpointOptions const& options = {}) {
      try {
        save_checkpoint(*trainer, path, options);
      } catch (Error const& error) {
        text = error.what();
      }
    };
    attempt(folder / "file/saved", message[rank]);
    attempt(folder / "file", again[rank]);
    attempt(folder / "noted", noted[rank], {.notes = "[1]"});
    steps[rank] =
        trainer->step(make_batch(0, comm.rank(), run.split, run.batch, run.sequence, run.vocabulary))
            .get()
            .step;
    trainer->fill([](int unit, int parameter, std::int64_t, std::span<float> out) {
      for (float& value : out)
        value = unit == 1 && parameter == 2 ? std::numeric_limits<float>::infinity() : 0.5f;
    });
    attempt(folder / "infinite", infinite[rank]);
  });
  CHECK(message[0] == message[1]);
  CHECK(message[0].find((folder / "file/.saved.partial").string()) == 0);
  CHECK(again[1].find("exists already") != std::string::npos);
  CHECK(noted[0] == noted[1]);
  CHECK(noted[0].find("CheckpointOptions::notes is [1], which is not the text of a JSON object") == 0);
  CHECK(steps == std::array<std::int64_t, 2>{1, 1});
  CHECK(infinite[0] == infinite[1]);
  CHECK(infinite[0].find("the weights are not finite after step 0: h.0.") == 0);
  CHECK(folder.entries() == 1);
}

TEST_CASE("a rank that dies while all save costs that checkpoint alone") {
  TemporaryFolder const folder;
  Run const run = run_of({.split = {3, 2}});
  Checkpoints series(folder.path());
  auto const part = [&](std::int64_t first, bool dies) {
    tessera::run(3, [&](comm::Comm comm) {
      auto const trainer = make_trainer(any_model(tiny), recipe("zs2"), comm, options_of(run));
      if (first > 0) CHECK(resume(*trainer, series.path(first)).step == first);
      for (std::int64_t step = first; step < first + 2; ++step)
        (void)trainer->step(make_batch(step, comm.rank(), run.split, run.batch, run.sequence, run.vocabulary))
            .get();
      if (dies && comm.rank() == 1) throw Error(ErrorKind::failed, "struck by lightning");
      series.save(*trainer);
    });
  };
  part(0, false);
  std::string text;
  try {
    part(2, true);
  } catch (Error const& error) {
    text = error.what();
  }
  CHECK(text.find("struck by lightning") != std::string::npos);
  CHECK(series.newest() == 2);
  CHECK(fs::exists(folder / ".step-00000004.partial"));
  fs::create_directories(folder / ".step-00000001.old/model");
  series.lock();
  CHECK(folder.entries() == 2);
  CHECK_THROWS_AS(Checkpoints(folder.path()).lock(), Error);
  part(2, false);
  CHECK(series.steps() == std::vector<std::int64_t>{2, 4});
}

TEST_CASE("the newest checkpoints stay and others are none") {
  TemporaryFolder const folder;
  for (char const* name : {"step-7", "step-00000009x", "step-", "other"}) fs::create_directory(folder / name);
  Checkpoints const series(folder.path(), 2);
  CHECK(!series.newest());
  CHECK(Checkpoints(folder / "none").steps().empty());
  Run const run = run_of({.split = {1, 6}});
  auto const trainer = make_trainer(any_model(tiny), recipe("zs0"), {}, options_of(run));
  for (int step = 0; step < 4; ++step) {
    (void)trainer->step(make_batch(step, 0, run.split, run.batch, run.sequence, run.vocabulary)).get();
    CHECK(series.save(*trainer) == series.path(step + 1));
    CHECK(file_support::read(folder / "latest") == series.path(step + 1).filename().string() + "\n");
  }
  CHECK(series.steps() == std::vector<std::int64_t>{3, 4});
  CHECK(series.path(123456789).filename() == "step-123456789");
}
