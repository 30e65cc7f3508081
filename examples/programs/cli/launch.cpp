// SPDX-License-Identifier: Apache-2.0
#include "cli/launch.hpp"

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <fstream>
#include <iostream>
#include <map>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/data/file_bytes.hpp"

#include "cli/values.hpp"

namespace programs {
using namespace tessera;
namespace cli {

namespace {

std::shared_ptr<comm::Launch> launch_in_use;  // null until join_launch sets it
bool rank_0_is_missing = false;               // this process looked for rank 0 and did not find it

/// Makes standard output write to the file `path`. If `errors` is true, standard error writes there too. If
/// `append` is true, keeps the contents of the file, as a resumed run does.
void redirect(std::filesystem::path const& path, bool errors, bool append = false) {
  int const file = ::open(path.c_str(), O_WRONLY | O_CREAT | (append ? O_APPEND : O_TRUNC) | O_CLOEXEC, 0644);
  if (file < 0)
    throw Error(ErrorKind::failed,
                "--log-ranks: cannot write " + files::path_text(path) + ": " + std::strerror(errno));
  std::cout.flush();
  ::dup2(file, STDOUT_FILENO);
  if (errors) ::dup2(file, STDERR_FILENO);
  ::close(file);
}

using Flags = std::map<std::string, std::string>;

/// Returns the flags of this rank that must be equal on all ranks.
Flags shared_flags(CommandLine const& line) {
  Flags flags;
  for (auto const& [name, values] : line.given_flags()) flags[name] = values;
  // The flags in this list may differ: each host can have different cores and disks, and only rank 0 writes
  // the log.
  for (char const* own :
       {"--local_rank", "--log-ranks", "--log", "--threads", "--nvme-path", "--product-plans"})
    flags.erase(own);
  return flags;
}

std::string in_words(std::string const& name, Flags const& flags) {
  auto const found = flags.find(name);
  if (found == flags.end()) return "no " + name;
  return found->second.empty() ? name : name + " " + found->second;
}

/// Throws Error(config) on all ranks if a rank was started with other flags than rank 0.
void compare_flags(CommandLine const& line, comm::Launch& launch) {
  Flags const own = shared_flags(line);
  std::string const text = nlohmann::json(own).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  launch.begin();
  std::vector<std::string> const texts = launch.all_gather(text, "compare their flags");
  for (std::size_t rank = 1; rank < texts.size(); ++rank) {
    if (texts[rank] == texts[0]) continue;
    auto const first = nlohmann::json::parse(texts[0]).get<Flags>(),
               other = nlohmann::json::parse(texts[rank]).get<Flags>();
    std::string differing;
    for (Flags const* flags : {&other, &first})
      for (auto const& [name, value] : *flags)
        if (differing.empty() && in_words(name, first) != in_words(name, other)) differing = name;
    throw Error(ErrorKind::config, "ranks were started with different flags: rank 0 has " +
                                       in_words(differing, first) + ", " +
                                       launch.name(static_cast<int>(rank)) + " has " +
                                       in_words(differing, other) + "; start every rank with the same flags");
  }
}

}  // namespace

void advise_on_launcher_flags(CommandLine& line, std::string const& instead) {
  line.foreign({"--num_gpus", "--nproc_per_node"},
               "is a flag of the launcher and comes before the program: deepspeed --no_python --num_gpus N "
               "PROGRAM, or torchrun --nproc-per-node N --no-python -- PROGRAM; " +
                   instead);
  line.foreign({"--num_nodes", "--nnodes", "--node_rank", "--hostfile", "--master_addr", "--master_port"},
               "is a flag of the launcher and comes before the program, such as torchrun --nnodes N "
               "--nproc-per-node N --no-python -- PROGRAM");
}

void add_launch_flags(CommandLine& line, LaunchFlags& flags) {
  line.group("Ranks as processes (torchrun, deepspeed, srun, mpirun)");
  line.path("--log-ranks", "FOLDER", flags.log_ranks,
            "write what each rank prints to FOLDER/rank-R.log; default: only rank 0 prints");
  line.custom("--local_rank,--local-rank", "N", "", "has no effect: launchers of Python scripts add it",
              [](std::string const&, std::string const&) {});
  advise_on_launcher_flags(line, "without a launcher, use --ranks N");
  comm::LaunchEnvironment const launch = comm::launch_environment();
  if (launch.world > 1) line.preset({"--ranks", std::to_string(launch.world)}, launch.source);
}

void join_launch(CommandLine const& line, LaunchFlags const& flags) {
  comm::LaunchEnvironment const launch = comm::launch_environment();
  if (launch.world == 1) {
    if (!flags.log_ranks.empty())
      refuse(
          "--log-ranks writes a file for each process of a launch, and no launcher started this program; "
          "leave "
          "it out, or start the program with torchrun, deepspeed, srun or mpirun");
    return;
  }
  std::string const world = std::to_string(launch.world);
  if (Names const* const ranks = line.values_of("--ranks"); ranks && *ranks != Names{world})
    throw Error(ErrorKind::config, line.written("--ranks") + " " + cli::joined(*ranks, " ") +
                                       " contradicts the launcher: " + comm::describe(launch) + "; leave " +
                                       line.written("--ranks") + " out");
  if (!flags.log_ranks.empty()) {
    std::error_code code;
    std::filesystem::create_directories(flags.log_ranks, code);
    redirect(flags.log_ranks / ("rank-" + std::to_string(launch.rank) + ".log"), true,
             line.knows("--resume") && line.given("--resume"));
  } else if (launch.rank > 0) {
    redirect("/dev/null", false);
  }
  try {
    launch_in_use = comm::launch_of_process();
  } catch (Error const& error) {
    rank_0_is_missing = launch.rank != 0 && error.rank() == 0;
    throw;
  }
  compare_flags(line, *launch_in_use);
}

std::shared_ptr<comm::Launch> const& joined_launch() { return launch_in_use; }

bool is_first_process() { return !launch_in_use || launch_in_use->rank() == 0; }

int ranks_here(int ranks) { return launch_in_use ? 1 : ranks; }
int ranks_on_host() { return launch_in_use ? launch_in_use->ranks_on_host() : 0; }

bool decided_by_first_process(bool own) {
  if (!launch_in_use) return own;
  launch_in_use->begin();
  return launch_in_use->all_gather(own ? "yes" : "no", "decide together").front() == "yes";
}

bool prints_failure(std::string_view text) {
  if (launch_in_use) return launch_in_use->first_to_fail(std::string(text));
  if (rank_0_is_missing) return true;  // no other process may be running that could print the message
  try {
    if (comm::launch_environment().prints_shared_errors()) return true;
  } catch (Error const&) {
    return true;
  }
  std::this_thread::sleep_for(std::chrono::seconds(1));
  return false;
}

void tell_launcher(std::string_view text) {
  char const* const path = std::getenv("TORCHELASTIC_ERROR_FILE");
  if (!path || !*path) return;
  nlohmann::json message;
  message["message"] = text;
  message["extraInfo"] = {{"py_callstack", ""}, {"timestamp", std::to_string(std::time(nullptr))}};
  std::ofstream(path) << nlohmann::json{{"message", std::move(message)}}.dump(
      -1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace cli
}  // namespace programs
