// SPDX-License-Identifier: Apache-2.0
// The frame of a program: what it throws becomes one line on stderr and an exit code; Ctrl-C, SIGTERM
// and SIGHUP once let it finish its step, again half a second later or more end it now.
#pragma once

#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <exception>
#include <iostream>
#include <iterator>
#include <new>
#include <string>
#include <string_view>
#include <unistd.h>

#include "tessera/core/error.hpp"
#include "tessera/data/file_bytes.hpp"

namespace tessera::inline v0 {
namespace cli {

/// Prints "error: TEXT" as one line without control characters.
inline void print_error(std::string_view text) {
  std::cout.flush();
  std::string line(text);
  for (char& c : line)
    if (c == '\n' || c == '\r') c = ' ';
  std::cerr << "error: " << v0::detail::printable(line, line.size()) << std::endl;
}

/// Runs `body`, which gives the exit code, and turns what it throws into a line and a code. Output that could
/// not be written is a failure too.
template <class Body>
int guarded(Body&& body) {
  ::signal(SIGXFSZ, SIG_IGN);  // a file that grows too large is then an error of its write
  try {
    int const code = body();
    std::cout.flush();
    if (!std::cout) {
      print_error("standard output could not be written completely; is the disk full?");
      return code == 0 ? exit_code(ErrorKind::failed) : code;
    }
    return code;
  } catch (Error const& error) {
    print_error(error.what());
    return exit_code(error.kind());
  } catch (std::bad_alloc const&) {
    print_error("out of memory: the system gave no more; choose a smaller batch, sequence or model");
    return exit_code(ErrorKind::out_of_memory);
  } catch (std::exception const& error) {
    print_error(std::string(error.what()) + "; this was not expected");
    return exit_code(ErrorKind::failed);
  }
}

namespace detail {

// A signal handler can reach nothing but what is static. The first signal: its milliseconds and its number.
inline std::atomic<std::int64_t> signal_caught{0};
static_assert(std::atomic<std::int64_t>::is_always_lock_free);
/// Seconds from then until the program ends by itself; 0: it waits for its step.
inline std::atomic<unsigned> signal_patience{0};

extern "C" inline void tessera_program_signal(int number) {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  std::int64_t const now = std::int64_t{time.tv_sec} * 1000 + time.tv_nsec / 1000000;
  std::int64_t first = 0;
  // Who reads the output hangs up too, and that must not end the program before it has saved.
  if (number == SIGHUP) ::signal(SIGPIPE, SIG_IGN);
  if (signal_caught.compare_exchange_strong(first, now * 256 + number)) {
    if (unsigned const seconds = signal_patience.load(); seconds > 0) ::alarm(seconds);
    return;
  }
  // timeout(1) and some shells send the same signal twice at once, to the process and to its group.
  if (now - first / 256 >= 500) ::_exit(128 + number);
}

extern "C" inline void tessera_program_late(int) {
  constexpr char text[] = "error: interrupted, and the step did not end in time; there was nothing to save\n";
  (void)!::write(STDERR_FILENO, text, sizeof text - 1);
  ::_exit(128 + static_cast<int>(signal_caught.load() % 256));
}

}  // namespace detail

/// While it lives, the first SIGINT, SIGTERM or SIGHUP is only noted; one that comes half a second later or
/// more ends the process. Under nohup SIGHUP stays ignored. With `patience` the process also ends when nobody
/// has heeded the signal for so many seconds: for a program that would lose nothing by it.
class Interrupt {
 public:
  explicit Interrupt(unsigned patience = 0) {
    detail::signal_patience.store(patience);
    if (patience > 0) old_alarm_ = ::signal(SIGALRM, detail::tessera_program_late);
    struct sigaction action {};
    action.sa_handler = detail::tessera_program_signal;
    sigemptyset(&action.sa_mask);
    action.sa_flags = SA_RESTART;
    for (std::size_t at = 0; at < std::size(signals); ++at) {
      ::sigaction(signals[at], nullptr, &old_[at]);
      if (signals[at] != SIGHUP || old_[at].sa_handler != SIG_IGN) ::sigaction(signals[at], &action, nullptr);
    }
  }
  Interrupt(Interrupt const&) = delete;
  Interrupt& operator=(Interrupt const&) = delete;
  ~Interrupt() {
    heed();
    if (old_alarm_ != SIG_ERR) ::signal(SIGALRM, old_alarm_);
    for (std::size_t at = 0; at < std::size(signals); ++at) ::sigaction(signals[at], &old_[at], nullptr);
  }

  static bool caught() { return number() != 0; }
  /// The step has ended: what comes now takes the time it needs.
  static void heed() {
    detail::signal_patience.store(0);
    ::alarm(0);
  }
  /// 129, 130 or 143; 0 when no signal came.
  static int exit_code() { return caught() ? 128 + number() : 0; }
  static std::string name() {
    return number() == SIGTERM ? "SIGTERM" : number() == SIGHUP ? "SIGHUP" : "SIGINT";
  }

 private:
  static int number() { return static_cast<int>(detail::signal_caught.load() % 256); }

  static constexpr int signals[] = {SIGINT, SIGTERM, SIGHUP};
  struct sigaction old_[std::size(signals)] = {};
  void (*old_alarm_)(int) = SIG_ERR;  // none was replaced
};

/// Where the rank threads of one run agree whether there is a next step. Rank 0 decides after each step, the
/// others ask before the next one. A step is a meeting of all ranks, so nobody is more than one answer
/// behind.
class StepGate {
 public:
  /// Rank 0: whether `step` takes place.
  void say(std::int64_t step, bool goes) {
    state_.store(2 * step + (goes ? 1 : 0));
    state_.notify_all();
  }
  /// Any rank: waits until that is known.
  bool goes(std::int64_t step) const {
    for (;;) {
      std::int64_t const state = state_.load();
      if (state / 2 >= step) return state % 2 != 0;
      state_.wait(state);
    }
  }

  /// Lives in rank 0: when it unwinds from an error, nobody goes on waiting.
  class Keeper {
   public:
    explicit Keeper(StepGate& gate) : gate_(gate) {}
    Keeper(Keeper const&) = delete;
    Keeper& operator=(Keeper const&) = delete;
    ~Keeper() { gate_.say(std::int64_t{1} << 60, false); }

   private:
    StepGate& gate_;
  };

 private:
  std::atomic<std::int64_t> state_{1};  // step 0 takes place
};

/// Where the rank threads of one run agree, before each round, whether it takes place: when every rank has
/// what the round needs and rank 0 wants it.
class Rounds {
 public:
  explicit Rounds(std::int64_t ranks) : ranks_(ranks) {}

  /// One rank's part. When it goes, also by an error, nobody waits for that rank any longer.
  class Member {
   public:
    Member(Rounds& rounds, bool root) : rounds_(rounds), root_(root) {}
    Member(Member const&) = delete;
    Member& operator=(Member const&) = delete;
    ~Member() {
      rounds_.add(std::int64_t{1} << 40);
      if (root_) rounds_.gate_.say(std::int64_t{1} << 60, false);
    }

    /// The same answer on all ranks. `wanted` is asked on rank 0, when all others are here.
    template <class Wanted>
    bool next(bool ready, Wanted&& wanted) {
      ++round_;
      if (!ready) rounds_.unready_.store(true);
      rounds_.add(1);
      if (root_) {
        rounds_.await(round_ * rounds_.ranks_);
        rounds_.gate_.say(round_, !rounds_.unready_.load() && wanted());
      }
      return rounds_.gate_.goes(round_);
    }

   private:
    Rounds& rounds_;
    bool root_;
    std::int64_t round_ = 0;
  };

 private:
  void add(std::int64_t count) {
    arrived_.fetch_add(count);
    arrived_.notify_all();
  }
  void await(std::int64_t count) const {
    for (std::int64_t seen; (seen = arrived_.load()) < count;) arrived_.wait(seen);
  }

  std::int64_t ranks_;
  std::atomic<std::int64_t> arrived_{0};
  std::atomic<bool> unready_{false};
  StepGate gate_;
};

}  // namespace cli
}  // namespace tessera::inline v0
