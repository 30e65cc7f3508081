// SPDX-License-Identifier: Apache-2.0
// Exchanges errors, signals and traced times between the ranks of a training run, and compares the training
// data of the ranks.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/comm/communicator.hpp"
#include "tessera/core/error.hpp"

#include "cli/launch.hpp"
#include "cli/program.hpp"
#include "cli/values.hpp"
#include "trace/clocks.hpp"
#include "trace/marks.hpp"
#include "trace/step_times.hpp"
#include "workload/data.hpp"

namespace programs {
using namespace tessera;
namespace cli {

/// Tells all processes of a launch which data error or signal ended training in this process. Returns the
/// data error of the lowest rank that has one; nullopt if no rank has one. If no launcher started this
/// process, returns nullopt.
inline std::optional<Error> shared_end(comm::Comm const& comm, std::optional<Error> const& data_error) {
  std::optional<Error> first;
  if (!joined_launch()) return first;
  Json own = {{"signal", Interrupt::number()}};
  if (data_error) own["error"] = {static_cast<int>(data_error->kind()), data_error->what()};
  std::string const text = own.dump(-1, ' ', false, Json::error_handler_t::replace);
  int rank = 0;
  for (std::string const& each : comm::all_gather_text(comm.transport(), text, {"end"})) {
    Json const end = Json::parse(each);
    Interrupt::adopt(end["signal"].get<int>());
    if (end.contains("error") && !first)
      first.emplace(static_cast<ErrorKind>(end["error"][0].get<int>()), end["error"][1].get<std::string>(),
                    rank);
    ++rank;
  }
  return first;
}

/// Throws Error(config) on all ranks if the processes of a launch have opened different data. All ranks must
/// call this function together.
inline void agree_on_data(comm::Comm const& comm, std::optional<TokenSource> const& training,
                          std::optional<TokenSource> const& validation) {
  if (!joined_launch()) return;  // threads share the data
  constexpr char advice[] = "give all hosts the same files";
  if (training) comm::agree(comm.transport(), digest_of(*training), "training data", advice);
  if (validation) comm::agree(comm.transport(), digest_of(*validation), "validation data", advice);
}

/// Stores `times`, the traced times of this rank, in `all`, which has one element for each rank. Threads of
/// one process share `all`. If a launcher started several processes, the processes exchange their times.
/// Afterwards, `all` on rank 0 has the times of all ranks, measured by the clock of rank 0. All ranks must
/// call this function together.
inline void gather_times(RankTimes times, comm::Comm const& comm, std::vector<RankTimes>& all) {
  if (!joined_launch()) {
    all[static_cast<std::size_t>(comm.rank())] = std::move(times);
    comm::unanimous(comm, true);
    return;
  }
  ClockDifference const clock = clock_difference(comm.transport(), boot_id(), &monotonic_nanoseconds);
  shift(times, clock.offset);
  times.clock_error = clock.error;
  auto const texts = comm::all_gather_text(comm.transport(), text_of(times), {"trace"});
  for (std::size_t rank = 0; rank < texts.size() && comm.is_root(); ++rank)
    all[rank] = rank_times(texts[rank]);
}

}  // namespace cli
}  // namespace programs
