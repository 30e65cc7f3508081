// SPDX-License-Identifier: Apache-2.0
// Provides tessera::run, which runs a function in one thread for each rank. If ranks fail, the caller gets
// one exception: the first cause.
#pragma once

#include <concepts>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <typeinfo>
#include <utility>
#include <vector>

#include "tessera/comm/communicator.hpp"
#include "tessera/comm/threads.hpp"
#include "tessera/config.hpp"
#include "tessera/core/error.hpp"
#include "tessera/detail/clock.hpp"
#include "tessera/detail/function_ref.hpp"

namespace tessera {
inline namespace v0 {

struct RunOptions {
  /// Seconds that a rank waits for another rank that gives no sign of life. Then the waiting rank throws
  /// PeerLost.
  std::chrono::duration<double> timeout{300.0};
  /// After a failure: seconds that `run` waits for a rank that gives no sign of life. Then `run` calls
  /// `stuck`.
  std::chrono::duration<double> grace{30.0};
  /// Called once if a rank does not end within `grace` after a failure. A thread cannot be ended from
  /// outside, so this function should print `text` and exit the program. If the function returns, `run` waits
  /// until the rank ends. If no function is set, `run` calls std::terminate in the handler of a PeerLost with
  /// the text, so that the runtime prints the text.
  std::function<void(std::string const& text)> stuck{};
};

namespace detail {

/// Returns the text of the exception `thrown`. The other ranks throw a PeerLost that contains this text.
inline std::string text_of(std::exception_ptr const& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (std::exception const& exception) {
    return exception.what();
  } catch (...) {
    return "an exception that is not a std::exception";
  }
}

/// Returns whether the dynamic type of `error` is a class derived from Error. Without RTTI, always returns
/// false.
inline bool is_derived([[maybe_unused]] Error const& error) {
#if defined(__cpp_rtti)
  return typeid(error) != typeid(Error);
#else
  return false;
#endif
}

/// Keeps the exception that explains best why a call of `run` failed.
class FirstCause {
 public:
  /// Keeps `thrown`, the exception of rank `rank`, if it explains the failure better than the exception that
  /// is kept now. `began` says whether `thrown` ended the communicator. The exception that ended the
  /// communicator explains the failure best. A PeerLost that did not end it explains the failure worst,
  /// because it only reports the failure of another rank.
  void record(int rank, std::exception_ptr thrown, bool began) {
    bool echo = false;
    if (!began) {
      try {
        std::rethrow_exception(thrown);
      } catch (PeerLost const&) {
        echo = true;
      } catch (...) {
      }
    }
    int const weight = began ? 3 : echo ? 1 : 2;
    std::lock_guard lock(mutex_);
    if (weight <= weight_) return;
    weight_ = weight;
    rank_ = rank;
    thrown_ = std::move(thrown);
  }

  /// Throws the exception that is kept, if any. Adds the rank to it.
  void rethrow() {
    if (thrown_) throw_with_rank();
  }

 private:
  void throw_with_rank() {
    std::string const prefix = sentence({"rank ", rank_, ": "});
    try {
      std::rethrow_exception(thrown_);
    } catch (PeerLost const&) {
      throw;
    } catch (Error const& error) {
      if (error.rank() >= 0 || is_derived(error)) throw;
      throw_error(error.kind(), {prefix, error.what()}, rank_, error.unit());
    } catch (std::bad_alloc const& exception) {
      std::throw_with_nested(Error(ErrorKind::out_of_memory, prefix + exception.what(), rank_));
    } catch (std::exception const& exception) {
      std::throw_with_nested(Error(ErrorKind::failed, prefix + exception.what(), rank_));
    }
  }

  std::mutex mutex_;
  int weight_ = 0;
  int rank_ = -1;
  std::exception_ptr thrown_;
};

inline void watch_threads(comm::detail::ThreadGroup& group, RunOptions const& options) {
  std::string text;
  int rank = -1;
  if (group.await_leavers(options.grace, text, rank)) return;
  if (!options.stuck) {
    try {
      throw PeerLost(text, rank);
    } catch (...) {
      std::terminate();
    }
  }
  options.stuck(text);
  group.await_leavers(std::nullopt, text, rank);
}

/// A function that creates the transport of one rank in a group of threads.
using MakeTransport =
    FunctionRef<std::shared_ptr<comm::Transport>(std::shared_ptr<comm::detail::ThreadGroup> const&, int)>;

inline void run_threads(int ranks, FunctionRef<void(comm::Comm&)> fn, RunOptions const& options,
                        MakeTransport make) {
  auto const group = comm::detail::make_group(ranks, {options.timeout});
  std::vector<std::shared_ptr<comm::Transport>> ends(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) ends[static_cast<std::size_t>(rank)] = make(group, rank);
  FirstCause cause;
  auto const body = [&](int rank) {
    // The transports stay in `ends` until all ranks have left, because the destructor of a transport may need
    // the other ranks.
    comm::Comm handle(ends[static_cast<std::size_t>(rank)]);
    try {
      fn(handle);
    } catch (...) {
      auto thrown = std::current_exception();
      bool const began = group->lose(rank, sentence({"it threw: ", text_of(thrown)}));
      cause.record(rank, std::move(thrown), began);
    }
    group->leave(rank);
  };

  struct Joined {
    std::vector<std::thread> threads;
    ~Joined() {
      for (auto& thread : threads) thread.join();
    }
  } joined;
  joined.threads.reserve(static_cast<std::size_t>(ranks));
  try {
    for (int rank = 0; rank < ranks; ++rank)
      joined.threads.push_back(std::thread([&body, rank] { body(rank); }));
  } catch (std::system_error const& error) {
    int const started = static_cast<int>(joined.threads.size());
    std::string const text = sentence({"cannot start a thread for rank ", started, " of ", ranks, ": ",
                                       error.what(), "; choose fewer ranks"});
    bool const began = group->lose(started, text);
    cause.record(started, std::make_exception_ptr(Error(ErrorKind::failed, text, started)), began);
    for (int rank = started; rank < ranks; ++rank) group->leave(rank);
  }
  watch_threads(*group, options);
  for (auto& thread : joined.threads) thread.join();
  joined.threads.clear();
  cause.rethrow();
}

}  // namespace detail

/// Calls fn(comm) in `ranks` threads, one for each rank, and returns when all calls have returned. With one
/// rank, calls fn in the calling thread; then all exceptions pass unchanged.
///
/// If a rank throws, the other ranks throw PeerLost at their next collective, and `run` throws the first
/// cause: the exception that ended the communicator. An Error keeps its kind. If it has no rank yet, it gets
/// the rank and the prefix "rank R: ". A std::bad_alloc becomes an Error(out_of_memory), and another
/// std::exception becomes an Error(failed), with the original exception nested inside. Exceptions of other
/// types, and of classes derived from Error, pass unchanged. If a rank left early or did not arrive, and no
/// rank threw another exception, `run` throws the first PeerLost.
///
/// Throws Error(usage) unless `ranks` is from 1 to 64. Several calls of `run` may be active at once, and
/// calls of `run` may be nested.
template <class Fn>
requires std::invocable<Fn&, comm::Comm&>
void run(int ranks, Fn&& fn, RunOptions const& options = {}) {
  if (ranks == 1) {
    comm::Comm handle;
    fn(handle);
    return;
  }
  detail::run_threads(
      ranks, [&fn](comm::Comm& handle) { fn(handle); }, options,
      [](auto const& group, int rank) { return std::make_shared<comm::Threads>(group, rank); });
}

}  // namespace v0
}  // namespace tessera
