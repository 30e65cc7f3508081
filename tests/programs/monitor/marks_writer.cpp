// SPDX-License-Identifier: Apache-2.0
// The program `marks_writer FILE`. It simulates two training steps on two ranks, and writes their trace to
// FILE as the program `train` does. In each step, each rank sleeps 0.3 s for the forward pass, 0.2 s for the
// backward pass and 0.05 s for the update. Rank 1 is 0.1 s behind rank 0.
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "trace/step_times.hpp"

namespace cli = programs::cli;

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  constexpr std::int64_t ms = 1'000'000, behind = 100 * ms;
  std::int64_t const start = cli::monotonic_nanoseconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(1250));
  std::vector<cli::RankTimes> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    cli::RankTimes times;
    times.rank = rank;
    times.entries.resize(3);
    for (int phase = 0; phase < 3; ++phase) times.entries[static_cast<std::size_t>(phase)].phase = phase;
    for (std::int64_t number = 0; number < 2; ++number) {
      std::int64_t const begin = start + rank * behind + number * 550 * ms;
      cli::TimedStep step;
      step.number = 3 + number;
      step.whole = {begin, begin + 550 * ms};
      step.instances = {{0, 0, {begin, begin + 300 * ms}},
                        {1, 0, {begin + 300 * ms, begin + 500 * ms}},
                        {2, -1, {begin + 500 * ms, begin + 550 * ms}}};
      times.steps.push_back(step);
    }
    ranks.push_back(times);
  }
  cli::write_trace(argv[1], ranks);
  return 0;
}
