// SPDX-License-Identifier: Apache-2.0
// Provides run_in_launch, the counterpart of tessera::run for the processes of a launch. Each process runs
// one rank.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "tessera/comm/communicator.hpp"
#include "tessera/comm/launch.hpp"
#include "tessera/comm/run.hpp"
#include "tessera/config.hpp"
#include "tessera/core/error.hpp"
#include "tessera/detail/clock.hpp"

namespace tessera {
inline namespace v0 {
namespace comm {
namespace detail {

/// Describes how the function `fn` of run_in_launch ended on one rank. Ranks send it to each other as bytes.
struct Outcome {
  bool threw = false;
  bool echo = false;  ///< it threw a PeerLost, which only reports the failure of another rank
  ErrorKind kind = ErrorKind::failed;
  std::string text, unit;

  static Outcome of(std::exception_ptr const& thrown) {
    Outcome outcome;
    if (!thrown) return outcome;
    outcome.threw = true;
    try {
      std::rethrow_exception(thrown);
    } catch (Error const& error) {
      outcome.echo = error.kind() == ErrorKind::peer_lost;
      outcome.kind = error.kind();
      outcome.text = error.what();
      outcome.unit = error.unit();
    } catch (std::bad_alloc const& error) {
      outcome.kind = ErrorKind::out_of_memory;
      outcome.text = error.what();
    } catch (...) {
      outcome.text = v0::detail::text_of(thrown);
    }
    return outcome;
  }

  std::string bytes() const {
    return FrameWriter(0)
        .number(threw)
        .number(echo)
        .number(static_cast<std::uint64_t>(kind))
        .text(text)
        .text(unit)
        .done();
  }
  static Outcome read(std::string const& bytes) {
    FrameReader from(bytes.size() > 4 ? bytes.substr(4) : std::string(1, '\0'));
    Outcome outcome;
    outcome.threw = from.number() != 0;
    outcome.echo = from.number() != 0;
    outcome.kind = static_cast<ErrorKind>(from.number());
    outcome.text = from.text();
    outcome.unit = from.text();
    return outcome;
  }
};

/// A thread that calls options.stuck, or ends the process, if the function of this rank does not end after a
/// failure of the communicator.
class Watchdog {
 public:
  Watchdog(Launch const& launch, RunOptions const& options)
      : launch_(launch), options_(options), thread_([this] { watch(); }) {}
  ~Watchdog() {
    done_.store(true, std::memory_order_relaxed);
    thread_.join();
  }

 private:
  void watch() const {
    auto failed = SteadyClock::time_point::max();
    for (; !done_.load(std::memory_order_relaxed);
         std::this_thread::sleep_for(std::chrono::milliseconds(50))) {
      auto const fault = launch_.fault();
      if (!fault) continue;
      auto const now = SteadyClock::now();
      failed = std::min(failed, now);
      // If a process is lost, the whole launch has failed. Nothing is left to wait for, so 5 s are enough.
      double const grace = fault->communicator == every_communicator ? 5.0 : options_.grace.count();
      if (std::chrono::duration<double>(now - failed).count() < grace) continue;
      std::string const text = sentence(
          {fault->rank < 0 ? std::string("the launch has failed") : launch_.name(fault->rank) + " is lost",
           ": ", fault->text, " [rank ", launch_.rank(), " did not end within ", seconds_text(grace),
           " after that]"});
      if (options_.stuck) return options_.stuck(text);
      std::fprintf(stderr, "%s\n", text.c_str());
      ::_exit(exit_code(ErrorKind::peer_lost));
    }
  }

  Launch const& launch_;
  RunOptions const& options_;
  std::atomic<bool> done_{false};
  std::thread thread_;
};

/// Throws the error that explains best why the function `fn` of run_in_launch failed. `outcomes` has the
/// outcome of each rank. `first` is the rank that ended the communicator, or -1. If the rank `first` threw an
/// error, throws the error of `first`. Otherwise throws the error of the lowest rank that threw one. A
/// PeerLost does not count, because it only reports the failure of another rank. Returns if no rank threw an
/// error that counts.
inline void rethrow_first(Launch const& launch, std::vector<Outcome> const& outcomes, int first) {
  auto const explains = [&](int rank) {
    Outcome const& outcome = outcomes[static_cast<std::size_t>(rank)];
    return outcome.threw && !outcome.echo;
  };
  int cause = first >= 0 && explains(first) ? first : -1;
  for (int rank = 0; rank < launch.world() && cause < 0; ++rank)
    if (explains(rank)) cause = rank;
  if (cause < 0) return;
  Outcome const& outcome = outcomes[static_cast<std::size_t>(cause)];
  std::string const name = launch.name(cause);
  throw Error(
      outcome.kind,
      outcome.text.find(name) != std::string::npos ? outcome.text : sentence({name, ": ", outcome.text}),
      cause, outcome.unit);
}

}  // namespace detail

/// Calls fn(comm) for the rank of this process, and returns when `fn` has ended on all ranks. `connect`
/// creates the communicator. All ranks of the launch must call run_in_launch together. They may call
/// run_in_launch several times. If `fn` throws on one rank, the other ranks throw PeerLost at their next
/// collective, and this function throws the first cause on every rank. If a process is lost, this function
/// throws PeerLost. After a failure, a rank that does not end within options.grace calls options.stuck, or
/// ends its process if options.stuck is empty. If a process is lost, the grace is 5 s.
inline void run_in_launch(Launch& launch, std::function<Comm()> const& connect,
                          std::function<void(Comm&)> const& fn, RunOptions const& options = {}) {
  std::exception_ptr thrown;
  int first = -1;
  {
    detail::Watchdog const watchdog(launch, options);
    launch.begin();
    try {
      Comm handle = connect();
      fn(handle);
    } catch (...) {
      thrown = std::current_exception();
      launch.lose(launch.rank(), sentence({"it threw: ", v0::detail::text_of(thrown)}));
    }
    auto const fault = launch.fault();
    if (fault && fault->communicator == detail::every_communicator) {
      if (thrown) std::rethrow_exception(thrown);
      launch.raise(*fault, "had ended");
    }
    if (fault) first = fault->rank;
  }
  launch.begin();
  auto const ended = detail::Outcome::of(thrown).bytes();
  std::vector<detail::Outcome> outcomes;
  std::optional<std::chrono::duration<double>> limit;
  if (thrown) limit = options.grace + std::chrono::seconds(5);
  try {
    for (std::string const& bytes : launch.all_gather(ended, "end a run", limit))
      outcomes.push_back(detail::Outcome::read(bytes));
  } catch (PeerLost const&) {
    if (thrown) std::rethrow_exception(thrown);
    throw;
  }
  detail::rethrow_first(launch, outcomes, first);
  if (thrown) std::rethrow_exception(thrown);
  for (detail::Outcome const& outcome : outcomes)
    if (outcome.threw) throw PeerLost(outcome.text, -1, outcome.unit);
}

}  // namespace comm
}  // namespace v0
}  // namespace tessera
