// SPDX-License-Identifier: Apache-2.0
// Detects the launcher of this process, if any: torchrun, deepspeed, Open MPI, PMI, MVAPICH or SLURM.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <unistd.h>

#include "tessera/comm/communicator.hpp"
#include "tessera/core/error.hpp"

namespace tessera {
inline namespace v0 {
namespace comm {

/// The information about this process that a launcher gives in environment variables. `local_rank` is the
/// index of the rank on its host, and `local_world` is the number of ranks on the host. Rank 0 listens at
/// `master_address` and `master_port`. If the launcher does not give a value, `local_rank` is -1,
/// `local_world` and `master_port` are 0, and `master_address` is empty.
struct LaunchEnvironment {
  std::string source = "none";
  int rank = 0;
  int world = 1;
  int local_rank = 0;
  int local_world = 0;
  std::string master_address{};
  int master_port = 0;
  bool master_port_taken = false;  ///< the launcher itself listens on `master_port`; use another port

  /// Whether this rank prints an error that all ranks have: rank 0 and the first rank of each host.
  bool prints_shared_errors() const { return rank == 0 || local_rank <= 0; }
};

/// Returns the value of an environment variable, or null if it is not set.
using GetEnvironment = std::function<char const*(char const*)>;

/// Describes a launch environment, such as "torchrun: rank 1 of 4, local rank 1 of 2, master 10.0.0.1:29500".
/// Returns "none" if there is no launcher.
inline std::string describe(LaunchEnvironment const& launch) {
  if (launch.source == "none") return launch.source;
  std::string text = sentence({launch.source, ": rank ", launch.rank, " of ", launch.world});
  if (launch.local_rank >= 0) text += sentence({", local rank ", launch.local_rank});
  if (launch.local_rank >= 0 && launch.local_world > 0) text += sentence({" of ", launch.local_world});
  if (!launch.master_address.empty()) text += sentence({", master ", launch.master_address});
  if (!launch.master_address.empty() && launch.master_port > 0) text += sentence({":", launch.master_port});
  return text;
}

namespace detail {
[[noreturn]] inline std::string refuse_hosts(std::string_view list) {
  throw_error(ErrorKind::config, {"SLURM_STEP_NODELIST is '", list,
                                  "', which is not a list of hosts such as a[01-04,07],b; set MASTER_ADDR"});
}
}  // namespace detail

/// Returns the first host of a list that SLURM writes: "a[01-04,07],b" gives "a01", "n[3,5]-ib[0-1]" gives
/// "n3-ib0". If the list is empty or its brackets do not match, throws Error(config) with the text of the
/// list.
inline std::string first_host(std::string_view list) {
  std::string host;
  for (std::size_t at = 0; at < list.size() && list[at] != ','; ++at) {
    if (list[at] != '[') {
      if (list[at] == ']') detail::refuse_hosts(list);
      host += list[at];
      continue;
    }
    std::size_t const close = list.find(']', at);
    std::string_view const inside = close == list.npos ? "" : list.substr(at + 1, close - at - 1);
    std::string_view const first = inside.substr(0, inside.find_first_of(",-"));
    if (first.empty() || first.find('[') != first.npos) detail::refuse_hosts(list);
    host += first;
    at = close;
  }
  return host.empty() ? detail::refuse_hosts(list) : host;
}

namespace detail {

inline std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 && *name ? name : "an unnamed host";
}

/// Returns whether a script and not a launcher has started the ranks. A script sets the same variables as
/// torchrun, except the ones that begin with TORCHELASTIC.
inline bool started_by_script(LaunchEnvironment const& launch) {
  return launch.source == "torchrun" && !launch.master_port_taken;
}

class LaunchReader {
 public:
  explicit LaunchReader(GetEnvironment const& get) : get_(get) {}

  /// Returns whether the variable `name` is set. An empty variable counts as not set.
  bool has(char const* name) const { return text(name) != nullptr; }
  char const* text(char const* name) const {
    char const* const value = get_(name);
    return value && *value ? value : nullptr;
  }

  /// Returns the value of the variable `name`, a whole number from `low` to `high`. Throws Error(config) if
  /// the variable is not set or has another value. `source` is the name of the launcher, and `seen` is one of
  /// its variables that is set, for the error message.
  int need(char const* name, int low, int high, char const* source, char const* seen) const {
    if (!has(name)) missing(name, source, seen);
    return number(name, low, high);
  }
  [[noreturn]] void missing(char const* name, char const* source, char const* seen) const {
    throw_error(ErrorKind::config,
                {name, " is not set although ", seen, " is, so this is an incomplete ", source,
                 " launch; set ", name, ", or unset ", seen, " to run without a launcher"});
  }
  int number(char const* name, int low, int high) const {
    std::string_view const value = text(name);
    std::int64_t parsed = 0;
    bool good = value.size() <= 10;
    for (char const digit : value) {
      good = good && digit >= '0' && digit <= '9';
      if (good) parsed = parsed * 10 + (digit - '0');
    }
    if (!good || parsed < low || parsed > high)
      throw_error(ErrorKind::config, {name, " is '", value, "', which is not a whole number from ", low,
                                      " to ", high, "; correct it in the launcher's environment"});
    return static_cast<int>(parsed);
  }

 private:
  GetEnvironment const& get_;
};

inline constexpr int max_ranks = 1 << 24;

/// The names of the variables of one launcher. `source` is the name of the launcher. If the rank or the world
/// size is set, the rank, the world size and the local rank must all be set. If `optional` is true, the local
/// rank may be missing; then SLURM_LOCALID is read in its place, if it is set. For a world of one process,
/// only the world size must be set.
struct LauncherNames {
  char const* source;
  char const* rank;
  char const* world;
  char const* local_rank;
  char const* local_world;
  bool optional = false;
};

inline LaunchEnvironment read_ranks(LaunchReader const& read, LauncherNames const& names, char const* seen) {
  LaunchEnvironment launch;
  launch.source = names.source;
  launch.world = read.need(names.world, 1, max_ranks, names.source, seen);
  if (launch.world == 1 && !read.has(names.rank)) return launch;  // the rank can only be 0
  launch.rank = read.need(names.rank, 0, max_ranks, names.source, seen);
  if (launch.rank >= launch.world)
    throw_error(ErrorKind::config, {names.rank, " is ", launch.rank, " but ", names.world, " is ",
                                    launch.world, " on ", host_name(), "; ranks run from 0 to ",
                                    launch.world - 1, ", so correct ", names.rank, " or ", names.world});
  char const* local_rank = names.local_rank;
  if (names.optional && !read.has(local_rank)) local_rank = "SLURM_LOCALID";
  if (launch.world == 1) {  // the local rank selects the GPU of this process; -1 counts as not set
    if (read.has(local_rank) && std::string_view(read.text(local_rank)) != "-1")
      launch.local_rank = read.number(local_rank, 0, max_ranks);
    return launch;
  }
  if (names.optional && !read.has(local_rank)) {
    launch.local_rank = -1;
    return launch;
  }
  launch.local_rank = read.need(local_rank, 0, max_ranks, names.source, seen);
  if (names.local_world && read.has(names.local_world))
    launch.local_world = read.number(names.local_world, 1, max_ranks);
  if (launch.local_world > launch.world)
    throw_error(ErrorKind::config, {names.local_world, " is ", launch.local_world, " but ", names.world,
                                    " is ", launch.world, "; a host cannot hold more ranks than the world"});
  int const limit = launch.local_world > 0 ? launch.local_world : launch.world;
  if (launch.local_rank >= limit)
    throw_error(ErrorKind::config, {local_rank, " is ", launch.local_rank, ", which must be below ", limit,
                                    ", the ranks of ", launch.local_world > 0 ? "this host" : "the world"});
  return launch;
}

inline void read_master(LaunchReader const& read, LaunchEnvironment& launch) {
  if (char const* const address = read.text("MASTER_ADDR")) launch.master_address = address;
  if (read.has("MASTER_PORT")) launch.master_port = read.number("MASTER_PORT", 1, 65535);
}

/// Returns the number of ranks on the host with the number `node`, counted from 0. `list` is SLURM's list of
/// the numbers of ranks: "4(x2),3" means two hosts with 4 ranks each, then one host with 3 ranks. Returns 0
/// if the list is invalid or has no such host.
inline int tasks_on_node(std::string_view list, int node) {
  for (std::size_t at = 0; at < list.size();) {
    auto const read = [&] {
      int value = 0;
      while (at < list.size() && list[at] >= '0' && list[at] <= '9' && value < max_ranks)
        value = value * 10 + (list[at++] - '0');
      return value;
    };
    int const tasks = read();
    int hosts = 1;
    if (list.substr(at, 2) == "(x") {
      at += 2;
      hosts = read();
      if (at >= list.size() || list[at++] != ')') return 0;
    }
    if (tasks == 0 || hosts == 0) return 0;
    if (node < hosts) return tasks;
    node -= hosts;
    if (at < list.size() && list[at++] != ',') return 0;
  }
  return 0;
}

/// Returns the name of the variable with the number of tasks of the SLURM step. Prefers the variable of the
/// step, because the number of tasks of the whole job can differ: `salloc -n 4` reserves 4 tasks, but starts
/// only one shell.
inline char const* slurm_tasks(LaunchReader const& read) {
  if (read.has("SLURM_STEP_NUM_TASKS")) return "SLURM_STEP_NUM_TASKS";
  return read.has("SLURM_NTASKS") || !read.has("SLURM_NPROCS") ? "SLURM_NTASKS" : "SLURM_NPROCS";
}

/// Returns whether `srun --mpi=pmi2` has set the PMI variables. In this case they only repeat the rank and
/// the world size of SLURM and do not give the local rank, so the variables of SLURM are read instead. If
/// mpiexec runs inside a SLURM step, it sets PMI variables with a local rank or with other numbers; then this
/// function returns false.
inline bool pmi_of_slurm(LaunchReader const& read) {
  auto const same = [&](char const* one, char const* other) {
    return read.has(one) && read.has(other) && std::string_view(read.text(one)) == read.text(other);
  };
  return !read.has("MPI_LOCALRANKID") && same("PMI_RANK", "SLURM_PROCID") &&
         same("PMI_SIZE", slurm_tasks(read));
}

}  // namespace detail

/// Detects the launcher and returns its settings. `get` reads environment variables. `source` of the result
/// is "none" if there is no launcher. The launchers are tried in this order: RANK and WORLD_SIZE (torchrun,
/// deepspeed), Open MPI, PMI (MPICH, Intel MPI), MVAPICH, SLURM (SLURM_PROCID). PMI variables that srun
/// --mpi=pmi2 has set count as SLURM. A SLURM job id without SLURM_PROCID does not count as a launch. If the
/// variables of a launcher are incomplete, are not numbers or contradict each other, throws Error(config)
/// with the name of the variable.
inline LaunchEnvironment launch_environment(GetEnvironment const& get) {
  detail::LaunchReader const read(get);
  constexpr detail::LauncherNames launchers[] = {
      {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
      {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
       "OMPI_COMM_WORLD_LOCAL_SIZE"},
      {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", true},
      {"MVAPICH", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK",
       "MV2_COMM_WORLD_LOCAL_SIZE", true},
  };
  for (auto names : launchers) {
    bool const torch = std::string_view(names.source) == "torchrun";
    char const* seen = nullptr;
    for (char const* name : {names.rank, names.world, names.optional ? names.rank : names.local_rank})
      if (!seen && read.has(name)) seen = name;
    // Scripts for torch set only LOCAL_RANK=-1 to say that there is no launcher.
    if (torch && seen && seen == std::string_view("LOCAL_RANK") && read.text(seen) == std::string_view("-1"))
      continue;
    if (!seen || (std::string_view(names.source) == "PMI" && detail::pmi_of_slurm(read))) continue;
    bool const agent = read.has("TORCHELASTIC_RUN_ID") || read.has("TORCHELASTIC_RESTART_COUNT");
    if (torch && !agent && (read.has("CROSS_SIZE") || read.has("LOCAL_SIZE"))) {
      names.source = "deepspeed";
      if (!read.has(names.local_world)) names.local_world = "LOCAL_SIZE";
    }
    LaunchEnvironment launch = detail::read_ranks(read, names, seen);
    detail::read_master(read, launch);
    if (torch) {
      launch.master_port_taken = agent;
      if (launch.world > 1 && launch.master_address.empty())
        read.missing("MASTER_ADDR", names.source, "WORLD_SIZE");
      if (launch.master_port == 0) launch.master_port = 29500;
    } else if (launch.master_address.empty() && launch.local_world == launch.world) {
      launch.master_address = "127.0.0.1";
    }
    return launch;
  }
  if (read.has("SLURM_PROCID")) {
    bool const step = read.has("SLURM_STEP_ID") || read.has("SLURM_STEP_NODELIST");
    LaunchEnvironment launch;
    if (step || read.has(detail::slurm_tasks(read)))
      launch = detail::read_ranks(
          read, {"SLURM", "SLURM_PROCID", detail::slurm_tasks(read), "SLURM_LOCALID", nullptr},
          "SLURM_PROCID");
    if (!step) launch.source = "SLURM batch script";
    if (launch.world == 1) return launch;
    if (read.has("SLURM_STEP_TASKS_PER_NODE") && read.has("SLURM_NODEID"))
      launch.local_world = detail::tasks_on_node(read.text("SLURM_STEP_TASKS_PER_NODE"),
                                                 read.number("SLURM_NODEID", 0, detail::max_ranks));
    detail::read_master(read, launch);
    char const* const hosts = read.text("SLURM_STEP_NODELIST");
    if (launch.master_address.empty() && hosts) launch.master_address = first_host(hosts);
    if (launch.master_port == 0 && read.has("SLURM_JOB_ID"))
      launch.master_port = 61440 + read.number("SLURM_JOB_ID", 0, 2147483647) % 4096;
    return launch;
  }
  if (read.has("PMIX_RANK"))
    throw Error(ErrorKind::config,
                "PMIX_RANK is set, but no variable tells the number of ranks, so this is an incomplete PMIx "
                "launch; start "
                "through mpirun or srun, which set it, or unset PMIX_RANK to run without a launcher");
  return {};
}

/// Does the same as launch_environment(get), with the environment variables of this process.
inline LaunchEnvironment launch_environment() {
  return launch_environment([](char const* name) -> char const* { return std::getenv(name); });
}

namespace detail {
/// The function that connects this process to the other processes of its launch and returns the communicator.
/// `get` reads environment variables. If `get` is null, the function reads the variables of this process, and
/// only its first call connects to the other processes. The header <tessera/launch.hpp> stores the function
/// here. In a program without this header the pointer is null, and the program does not compile the code for
/// sockets.
inline std::atomic<Comm (*)(GetEnvironment const* get)> join_processes{nullptr};

inline Comm join_or_refuse(LaunchEnvironment const& launch, GetEnvironment const* get) {
  if (launch.world == 1) return Comm();
  if (auto* const join = join_processes.load(std::memory_order_relaxed)) return join(get);
  throw_error(ErrorKind::unsupported,
              {"this process was started as one of several (", describe(launch),
               "), and this program cannot connect them; include <tessera/launch.hpp> in one of its sources"},
              launch.rank);
}
}  // namespace detail

/// Returns the communicator of this process. If there is no launcher, or if it started only one process, this
/// is a world of one rank. Otherwise the function connects the processes of the launch, and all of them must
/// call it together. To connect processes, one source of the program must include <tessera/launch.hpp>, or
/// the program must link the library tessera::recipes; otherwise the function throws Error(unsupported).
/// Throws Error(config) if the variables are wrong or if the processes cannot connect.
inline Comm from_environment(GetEnvironment const& get) {
  return detail::join_or_refuse(launch_environment(get), &get);
}
/// Does the same as from_environment(get), with the environment variables of this process. Only the first
/// call connects the processes. Each later call returns a new communicator of the same launch, and
/// communicators from earlier calls cannot be used any more.
inline Comm from_environment() { return detail::join_or_refuse(launch_environment(), nullptr); }

}  // namespace comm
}  // namespace v0
}  // namespace tessera
