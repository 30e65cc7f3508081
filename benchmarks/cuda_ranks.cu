// SPDX-License-Identifier: Apache-2.0
// Compares ranks that are threads of one process, ranks that are separate processes, and GPUs that train
// alone at the same time. In all cases the same training step of a GPT-2 is timed in the same way.
//
//   cuda_ranks RANKS [SHARDING [BATCH SEQUENCE [PRECISION [MODEL]]]]   ranks are threads
//   torchrun --nproc-per-node 4 --no-python cuda_ranks RANKS [...]     ranks are processes
//   cuda_ranks RANKS alone [BATCH SEQUENCE [PRECISION [MODEL]]]        each GPU trains a model of its own
//
// PRECISION is bf16 by default, and MODEL is gpt2.
// With torchrun, the launcher sets the number of ranks, and RANKS is ignored. With `alone`, the GPUs share
// the power supply, the cooling and the host, but exchange nothing. So the difference between `alone` and
// another sharding is the cost of the collectives. All GPUs start a window of steps together, and the window
// ends when the slowest GPU ends.
//
// Prints the median, lowest and highest tokens/s over several windows of steps, summed over all ranks. Also
// prints the seconds from main to the end of the first step, and the final loss of rank 0.
//
// GPUs that train together wait in each step for the slowest of them. With `alone`, the program prints the
// share of the rate that would remain if every step waited for the slowest GPU.
#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "tessera/comm/nccl.cuh"
#include "tessera/policy/parse.hpp"
#include "tessera/train/any_trainer.hpp"
#include "tessera/train/gpt2_family.hpp"

namespace {

namespace ts = tessera;
using Clock = std::chrono::steady_clock;

struct Work {
  int ranks = 1;
  std::string sharding = "zs0";
  int batch = 16;
  int sequence = 256;
  std::string precision = "bf16";
  std::string model = "gpt2";
};

int positive(char const* name, std::string_view text) {
  int value = 0;
  auto const [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || end != text.data() + text.size() || value < 1)
    throw ts::Error(ts::ErrorKind::usage, std::string(name) + " is '" + std::string(text) +
                                              "', which is not a whole number from 1 on");
  return value;
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

ts::RecipeTable recipe_of(Work const& work) {
  ts::SlotNames names;
  names.device = "cuda";
  names.sharding = work.sharding == "alone" ? "zs0" : work.sharding;
  names.precision = work.precision;
  return ts::parse_recipe(names);
}

/// Returns the sizes of a GPT-2.
ts::ModelSpec sizes_of(ts::ModelFamily const& gpt2, std::string const& model) {
  for (ts::NamedModel const& named : gpt2.models)
    if (named.name == model && named.positions) return gpt2.spec(named);
  throw ts::Error(ts::ErrorKind::usage, "MODEL is '" + model + "', which is not a GPT-2, such as gpt2-xl");
}

/// Returns the median, the lowest and the highest value.
std::array<double, 3> spread_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {values[values.size() / 2], values.front(), values.back()};
}

/// Returns the share of the rate that remains if every step takes as long as on the slowest GPU. `steps` has
/// the seconds of the steps of this rank, which no other rank waited for. All ranks must call it together.
double share_in_lockstep(ts::comm::Transport& transport, std::vector<double> const& steps) {
  std::size_t const world = static_cast<std::size_t>(transport.world()), count = steps.size();
  std::vector<double> all(world * count), sums(world);
  transport.all_gather(steps.data(), all.data(), static_cast<std::int64_t>(count * sizeof(double)));
  double together = 0;
  for (std::size_t step = 0; step < count; ++step) {
    double slowest = 0;
    for (std::size_t rank = 0; rank < world; ++rank) {
      slowest = std::max(slowest, all[rank * count + step]);
      sums[rank] += all[rank * count + step];
    }
    together += slowest;
  }
  return *std::max_element(sums.begin(), sums.end()) / together;
}

/// Returns a communicator of one rank that uses GPU `device`.
ts::comm::Comm alone_on(int device) {
  ts::comm::NcclOptions const options;
  auto const transport = std::make_shared<ts::comm::Nccl>(ts::comm::detail::make_group(1, {options.timeout}),
                                                          std::make_shared<ts::comm::detail::ThreadBoards>(1),
                                                          0, device, options.timeout);
  transport->connect({}, "");
  return ts::comm::Comm(transport);
}

void train(ts::comm::Comm const& comm, Work const& work, char const* kind, Clock::time_point start) {
  constexpr int windows = 5, steps = 20, warmup = 10;
  ts::ModelFamily const gpt2 = ts::gpt2_family();
  ts::ModelSpec const model = sizes_of(gpt2, work.model);
  bool const alone = work.sharding == "alone";
  auto const trainer = ts::make_trainer(gpt2.make(model), recipe_of(work),
                                        alone ? alone_on(comm.transport().local_rank()) : comm,
                                        {.batch = work.batch, .sequence = work.sequence});
  ts::Batch batch;
  batch.batch = work.batch;
  batch.sequence = work.sequence;
  std::uint32_t random = 1u + static_cast<std::uint32_t>(comm.rank());
  for (std::int64_t i = 0; i < batch.elements(); ++i) {
    random = random * 1664525u + 1013904223u;
    batch.tokens.push_back(static_cast<std::int32_t>((random >> 8) % model.vocabulary));
  }
  batch.targets = batch.tokens;

  std::optional<double> first;
  std::vector<double> intervals;  // the seconds of the steps, except the first step of each window
  auto const window = [&](int count) {
    comm.transport().barrier();
    auto const begin = Clock::now();
    std::vector<ts::Ticket> tickets;
    for (int i = 0; i < count; ++i) {
      ts::Ticket const& ticket = tickets.emplace_back(trainer->step(batch));
      batch.first_sample += std::int64_t{1} * work.batch * (alone ? 1 : comm.world());
      ++batch.step;
      if (!first) {
        ticket.get();
        first = seconds_since(start);
      }
    }
    trainer->synchronize();
    comm.transport().barrier();
    double const seconds = seconds_since(begin);
    for (std::size_t i = 1; i < tickets.size(); ++i) intervals.push_back(tickets[i].get().interval);
    return seconds;
  };
  window(warmup);
  intervals.clear();
  std::vector<double> rates;
  for (int i = 0; i < windows; ++i)
    rates.push_back(double(steps) * work.batch * work.sequence * comm.world() / window(steps));
  double const loss = trainer->evaluate(batch);
  double const lockstep = alone ? share_in_lockstep(comm.transport(), intervals) : 0;
  if (!comm.is_root()) return;
  auto const [middle, low, high] = spread_of(rates);
  std::printf(
      "%d ranks as %s, %s, %s %s %dx%d: %.0f tokens/s (%.0f to %.0f), first step after %.2f s, loss %.17g\n",
      comm.world(), kind, work.sharding.c_str(), work.model.c_str(), work.precision.c_str(), work.batch,
      work.sequence, middle, low, high, *first, loss);
  if (alone) std::printf("  if each step waited for the slowest GPU: %.4f of this rate\n", lockstep);
}

}  // namespace

int main(int argc, char** argv) {
  auto const start = Clock::now();
  try {
    Work work;
    if (argc > 1) work.ranks = positive("RANKS", argv[1]);
    if (argc > 2) work.sharding = argv[2];
    if (argc > 3) work.batch = positive("BATCH", argv[3]);
    if (argc > 4) work.sequence = positive("SEQUENCE", argv[4]);
    if (argc > 5) work.precision = argv[5];
    if (argc > 6) work.model = argv[6];
    if (ts::comm::launch_environment().world > 1)
      train(ts::comm::nccl_from_environment(), work, "processes", start);
    else
      ts::run_gpus(work.ranks, [&](ts::comm::Comm& comm) { train(comm, work, "threads", start); });
  } catch (ts::Error const& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return ts::exit_code(error.kind());
  }
}
