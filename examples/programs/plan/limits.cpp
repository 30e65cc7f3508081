// SPDX-License-Identifier: Apache-2.0
#include "plan/limits.hpp"

#include <algorithm>

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
  line.memory("--memory,--memory-per-rank", flags.memory,
              "what the device of each rank holds, such as 24GiB or 24GB, which are the same");
  cli::add_option_flag(line, "host_memory_limit", flags.host_memory);
  line.bytes("--nvme-memory", flags.nvme_memory,
             "what all ranks together may take of a disk for state on NVMe, such as 2TB");
  line.path("--nvme-path", "FOLDER", flags.nvme_path,
            "or the folder whose disk is asked what is free; else that of TMPDIR");
}

Limits limits_of(Device device, LimitFlags const& flags) {
  bool const gpus = device == Device::cuda;
  MemoryLimit const here = memory_limit(device, TrainerOptions{});
  constexpr char available[] = ", what this machine has available";
  Limits limits;
  auto const say = [&](std::string const& text) { limits.text += (limits.text.empty() ? "" : "; ") + text; };
  if (flags.memory > 0) {
    limits.bytes.device = gpus ? std::max<std::int64_t>(0, flags.memory - cuda::library_bytes) : flags.memory;
    say(bytes_text(flags.memory) + " for each rank's device" +
        (gpus ? ", " + bytes_text(cuda::library_bytes) + " of it for its libraries" : ""));
  } else if (gpus) {
    if (here.device <= 0)
      throw Error(ErrorKind::usage,
                  "this build or this machine has no GPU to ask; say how much memory each has, such as "
                  "--memory 24GiB");
    limits.bytes.device = here.device;
    say(bytes_text(here.device) + " for each rank's device" + available);
  }
  if (flags.host_memory > 0 || flags.memory == 0) {
    limits.bytes.host = flags.host_memory > 0 ? flags.host_memory : here.host;
    say(bytes_text(limits.bytes.host) + " of host memory for all ranks" +
        (flags.host_memory > 0 ? "" : available));
  } else {
    say("host memory is not limited, --host-memory says how much there is");
  }
  std::filesystem::path const folder = flags.nvme_path.empty() ? cli::temporary_path() : flags.nvme_path;
  std::int64_t const free = host_memory::free_bytes(folder);
  if (flags.nvme_memory > 0) {
    limits.bytes.nvme = flags.nvme_memory;
    say(bytes_text(flags.nvme_memory) + " on NVMe for all ranks");
  } else if (free >= 0 && (flags.memory == 0 || !flags.nvme_path.empty())) {
    limits.bytes.nvme = free;
    say(bytes_text(free) + " on NVMe for all ranks, what is free in " + files::path_text(folder));
  } else {
    say("NVMe is not limited, --nvme-memory or --nvme-path says how much there is");
  }
  return limits;
}

}  // namespace planning
}  // namespace programs
