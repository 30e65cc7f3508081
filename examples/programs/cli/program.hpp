// SPDX-License-Identifier: Apache-2.0
// Provides the common main function of the programs. It turns an exception into one line on standard error
// and an exit code. It also handles signals. After the first SIGINT (Ctrl-C), SIGTERM or SIGHUP, a program
// finishes its current training step before it ends. A second signal, at least half a second later, ends the
// program at once.
#pragma once

#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <exception>
#include <fcntl.h>
#include <iostream>
#include <iterator>
#include <new>
#include <poll.h>
#include <string>
#include <string_view>
#include <unistd.h>

#include "tessera/core/error.hpp"
#include "tessera/data/file_bytes.hpp"
#include "tessera/io/utf8.hpp"

#include "cli/launch.hpp"
#include "cli/values.hpp"

namespace programs {
using namespace tessera;
namespace cli {

/// Prints "error: TEXT" as a single line of UTF-8 without control characters.
inline void print_error(std::string_view text) {
  std::cout.flush();
  std::string storage, line(utf8::repaired(text, storage));
  for (char& c : line)
    if (c == '\n' || c == '\r') c = ' ';
  // Written in one piece, so that the lines of several ranks do not mix.
  std::cerr << "error: " + files::printable(line, line.size()) + "\n" << std::flush;
}

/// Prints the error that ends this program, and reports it to the launcher. If several ranks of a launch fail
/// with the same message, only one of them prints it.
inline void print_failure(std::string_view text) {
  tell_launcher(text);
  if (prints_failure(text)) print_error(text);
}

/// Prints `text` and ends the process at once. Used as RunOptions::stuck, which is called if a rank does not
/// return after another rank has failed.
inline void exit_stuck(std::string const& text) {
  print_failure(text);
  ::_exit(tessera::exit_code(ErrorKind::peer_lost));
}

/// Returns whether the process that reads standard output has exited. This happens in `program | head`, for
/// example.
inline bool reader_is_gone() {
  pollfd stream{STDOUT_FILENO, 0, 0};
  return ::poll(&stream, 1, 0) > 0 && (stream.revents & (POLLERR | POLLHUP)) != 0;
}

/// Opens /dev/null for each closed standard stream, so that no file opened later gets the descriptor of the
/// stream. A read from the closed standard input, or a write to the closed standard output, must still fail.
/// So /dev/null is opened for writing in place of standard input and for reading in place of an output.
inline void hold_standard_streams() {
  for (int const stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(stream, F_GETFD) < 0)
      (void)!::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

/// Runs `body`, which returns the exit code of the program. Turns an exception into an error line and an exit
/// code. If standard output could not be written, returns an error code, unless the reader of standard output
/// has exited.
template <class Body>
int guarded(Body&& body) {
  // With SIGXFSZ ignored, a write beyond the limit of file sizes returns an error instead of ending the
  // process.
  ::signal(SIGXFSZ, SIG_IGN);
  ::signal(SIGPIPE, SIG_IGN);
  hold_standard_streams();
  try {
    int const code = body();
    std::cout.flush();
    if (!std::cout && !reader_is_gone()) {
      print_error("standard output could not be written completely; is it closed, or the disk full?");
      return code == 0 ? exit_code(ErrorKind::failed) : code;
    }
    return code;
  } catch (Error const& error) {
    print_failure(in_flags(error.what()));
    return exit_code(error.kind());
  } catch (std::bad_alloc const&) {
    print_failure("out of memory: the system gave no more; choose a smaller batch, sequence or model");
    return exit_code(ErrorKind::out_of_memory);
  } catch (std::exception const& error) {
    print_failure(std::string(error.what()) + "; this is a defect of Tessera, please report it");
    return exit_code(ErrorKind::failed);
  }
}

namespace detail {

// 256 * the time of the first signal in milliseconds + the signal's number; 0: no signal yet. The variable is
// a global atomic because a signal handler can access nothing else safely.
inline std::atomic<std::int64_t> signal_caught{0};
static_assert(std::atomic<std::int64_t>::is_always_lock_free);
/// The number of the signal that another process of the same launch has caught; 0: none. If this process has
/// caught a signal too, the own signal takes precedence.
inline std::atomic<int> signal_elsewhere{0};
/// Seconds after the first signal at which the program exits even within a step; 0: no limit.
inline std::atomic<unsigned> signal_patience{0};

extern "C" inline void tessera_program_signal(int number) {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  std::int64_t const now = std::int64_t{time.tv_sec} * 1000 + time.tv_nsec / 1000000;
  std::int64_t first = 0;
  if (signal_caught.compare_exchange_strong(first, now * 256 + number)) {
    if (unsigned const seconds = signal_patience.load(); seconds > 0) ::alarm(seconds);
    return;
  }
  // timeout(1) and some shells send one signal to the process and again to its group at the same moment. The
  // second copy must not end the program.
  if (now - first / 256 >= 500) ::_exit(128 + number);
}

/// The error message for a program that ends `signal_patience` seconds after the first signal.
inline std::atomic<char const*> signal_late{nullptr};
static_assert(std::atomic<char const*>::is_always_lock_free);

extern "C" inline void tessera_program_late(int) {
  char const* const text = signal_late.load();
  (void)!::write(STDERR_FILENO, text, std::strlen(text));
  ::_exit(128 + static_cast<int>(signal_caught.load() % 256));
}

}  // namespace detail

/// Handles signals while the object exists. The first SIGINT, SIGTERM or SIGHUP is only recorded. A second
/// signal at least half a second later ends the process. Under nohup, SIGHUP stays ignored. If `patience` is
/// above 0, the process prints `late` and exits `patience` seconds after the first signal, unless
/// `cancel_countdown` is called before. A program sets `patience` if it has a time limit or nothing to save.
class Interrupt {
 public:
  explicit Interrupt(unsigned patience = 0,
                     char const* late =
                         "error: interrupted, and the step did not end in time; there was "
                         "nothing to save\n") {
    detail::signal_late.store(late);
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
    cancel_countdown();
    if (old_alarm_ != SIG_ERR) ::signal(SIGALRM, old_alarm_);
    for (std::size_t at = 0; at < std::size(signals); ++at) ::sigaction(signals[at], &old_[at], nullptr);
  }

  static bool caught() { return number() != 0; }
  /// Stops the countdown of `patience`. A program calls it after the step has ended, so that the countdown
  /// does not interrupt the saving of files.
  static void cancel_countdown() {
    detail::signal_patience.store(0);
    ::alarm(0);
  }
  /// Records the signal `number` that another process of the launch has caught. If this process has caught a
  /// signal, or catches one later, `number()` returns the signal of this process.
  static void adopt(int number) {
    if (number > 0) detail::signal_elsewhere.store(number);
  }
  /// Returns the number of the recorded signal; 0 if there was none.
  static int number() {
    auto const own = static_cast<int>(detail::signal_caught.load() % 256);
    return own > 0 ? own : detail::signal_elsewhere.load();
  }
  /// Returns 128 plus the number of the recorded signal (129, 130 or 143); 0 if there was none.
  static int exit_code() { return caught() ? 128 + number() : 0; }
  static std::string name() {
    return number() == SIGTERM ? "SIGTERM" : number() == SIGHUP ? "SIGHUP" : "SIGINT";
  }

 private:
  static constexpr int signals[] = {SIGINT, SIGTERM, SIGHUP};
  struct sigaction old_[std::size(signals)] = {};
  void (*old_alarm_)(int) = SIG_ERR;  // the handler to restore; SIG_ERR if this object replaced none
};

}  // namespace cli
}  // namespace programs
