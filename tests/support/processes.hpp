// SPDX-License-Identifier: Apache-2.0
// Starts the ranks of a test as separate processes, as a launcher such as torchrun does.
#pragma once

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/comm/launch.hpp"
#include "tessera/core/error.hpp"

namespace test {

/// The end of one process: its exit code and its result text (see `run_processes`). If a signal ended the
/// process, the code is 128 plus the number of the signal, as in a shell.
struct Ended {
  int code = -1;
  std::string text;
  double seconds = 0;  ///< from the start of all processes to the end of this process
};

using Environment = std::map<std::string, std::string>;

/// Returns the environment variables that torchrun sets for rank `rank` of `world` ranks. All ranks are on
/// this host, and they meet at `port`.
inline Environment rank_environment(int rank, int world, int port) {
  return {{"RANK", std::to_string(rank)},       {"WORLD_SIZE", std::to_string(world)},
          {"LOCAL_RANK", std::to_string(rank)}, {"LOCAL_WORLD_SIZE", std::to_string(world)},
          {"MASTER_ADDR", "127.0.0.1"},         {"MASTER_PORT", std::to_string(port)}};
}
inline tessera::comm::GetEnvironment reader(Environment const& variables) {
  return [&variables](char const* name) -> char const* {
    auto const found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

/// Calls fn(index) in `count` new processes and returns how each process ended. The text of a process is the
/// string that fn returned, or the text of the error that fn threw. The exit code is 0, or the exit code for
/// the kind of a tessera::Error, or 99 for another exception. Processes that run longer than `seconds`
/// seconds are killed.
inline std::vector<Ended> run_processes(int count, std::function<std::string(int)> const& fn,
                                        double seconds = 30) {
  using Clock = std::chrono::steady_clock;
  auto const start = Clock::now();
  std::vector<std::pair<::pid_t, int>> started;
  for (int index = 0; index < count; ++index) {
    std::array<int, 2> ends{};
    REQUIRE(::pipe(ends.data()) == 0);
    ::pid_t const child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      ::close(ends[0]);
      int code = 0;
      std::string text;
      try {
        text = fn(index);
      } catch (tessera::Error const& error) {
        code = tessera::exit_code(error.kind());
        text = error.what();
      } catch (std::exception const& error) {
        code = 99;
        text = error.what();
      }
      (void)!::write(ends[1], text.data(), text.size());
      ::_exit(code);
    }
    ::close(ends[1]);
    started.emplace_back(child, ends[0]);
  }
  std::vector<Ended> ended(static_cast<std::size_t>(count));
  int left = count;
  while (left > 0) {
    double const passed = std::chrono::duration<double>(Clock::now() - start).count();
    for (std::size_t i = 0; i < started.size(); ++i) {
      auto& [child, pipe] = started[i];
      int status = 0;
      if (child == 0) continue;
      if (passed > seconds) ::kill(child, SIGKILL);
      if (::waitpid(child, &status, WNOHANG) != child) continue;
      ended[i].seconds = passed;
      ended[i].code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      std::array<char, 4096> bytes{};
      while (auto const got = ::read(pipe, bytes.data(), bytes.size()))
        ended[i].text.append(bytes.data(), static_cast<std::size_t>(got > 0 ? got : 0));
      ::close(pipe);
      child = 0;
      --left;
    }
    ::usleep(2000);
  }
  return ended;
}

}  // namespace test
