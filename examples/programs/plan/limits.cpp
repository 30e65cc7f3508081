// SPDX-License-Identifier: Apache-2.0
#include "plan/limits.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "tessera/backend/cuda/runtime/budget.hpp"
#include "tessera/io/file.hpp"
#include "tessera/train/any_trainer.hpp"

#include "cli/run_flags.hpp"
#include "machine/nvme_folder.hpp"

namespace programs {
using namespace tessera;
namespace planning {

void add_limit_flags(cli::CommandLine& line, LimitFlags& flags) {
  line.group("Limits");
  line.memory(
      "--memory,--memory-per-rank", flags.memory,
      "memory of each rank's device, such as 24GB. In this flag a GB is a GiB, as in the names of GPUs");
  cli::add_option_flag(line, "host_memory_limit", flags.host_memory);
  line.bytes("--nvme-memory", flags.nvme_memory,
             "disk space for state on NVMe, for all ranks together, such as 2TB");
  line.path("--nvme-path", "FOLDER", flags.nvme_path,
            "or use the free space of this folder's disk; default: TMPDIR's");
}

Limits limits_of(Device device, LimitFlags const& flags) {
  bool const gpus = device == Device::cuda;
  MemoryLimit const here = memory_limit(device, TrainerOptions{});
  constexpr char available[] = ", the available memory of this machine";
  Limits limits;
  std::string const all_ranks = flags.hosts > 1 ? " for all ranks of a host" : " for all ranks";
  auto const say = [&](std::string const& text) { limits.text += (limits.text.empty() ? "" : "; ") + text; };
  // Returns the sum of a limit over all hosts.
  auto const of_hosts = [&](std::int64_t bytes) {
    return bytes > MemoryLimit::none / flags.hosts ? MemoryLimit::none : bytes * flags.hosts;
  };
  std::vector<std::string> const models = device_facts(device).models;
  bool const is_here = std::find(models.begin(), models.end(), flags.machine) != models.end();
  bool const exceeds = gpus && flags.machine_memory > 0 && flags.machine_memory < flags.memory;
  bool const of_machine = exceeds || (flags.memory == 0 && gpus && flags.machine_memory > 0 && !is_here);
  std::int64_t const memory = of_machine ? flags.machine_memory : flags.memory;
  if (memory > 0) {
    limits.bytes.device = gpus ? std::max<std::int64_t>(0, memory - cuda::library_bytes) : memory;
    say(bytes_text(memory) + " for each rank's device" +
        (of_machine ? ", the memory of " + files::printable(flags.machine) : "") +
        (exceeds ? " (the " + bytes_text(flags.memory) + " of --memory are more than it has)" : "") +
        (gpus ? ", " + bytes_text(cuda::library_bytes) + " of it for its libraries" : ""));
  } else if (gpus) {
    if (here.device <= 0)
      throw Error(ErrorKind::usage,
                  "the memory of a GPU is unknown, because this build or this machine has none; give it, "
                  "such as --memory 24GiB");
    limits.bytes.device = here.device;
    say(bytes_text(here.device) + " for each rank's device" + available);
  }
  if (flags.host_memory > 0 || memory == 0) {
    std::int64_t const bytes = flags.host_memory > 0 ? flags.host_memory : here.host;
    limits.bytes.host = of_hosts(bytes);
    say(bytes_text(bytes) + " of host memory" + all_ranks + (flags.host_memory > 0 ? "" : available));
  } else {
    say("host memory is not limited; --host-memory sets a limit");
  }
  std::filesystem::path const folder = flags.nvme_path.empty() ? cli::temporary_path() : flags.nvme_path;
  std::int64_t const free = host_memory::free_bytes(folder);
  if (flags.nvme_memory > 0) {
    limits.bytes.nvme = of_hosts(flags.nvme_memory);
    say(bytes_text(flags.nvme_memory) + " on NVMe" + all_ranks);
  } else if (free >= 0 && (memory == 0 || !flags.nvme_path.empty())) {
    limits.bytes.nvme = of_hosts(free);
    say(bytes_text(free) + " on NVMe" + all_ranks + ", the free space of " + files::path_text(folder));
  } else {
    say("NVMe is not limited; --nvme-memory or --nvme-path sets a limit");
  }
  return limits;
}

}  // namespace planning
}  // namespace programs
