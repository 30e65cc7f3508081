// SPDX-License-Identifier: Apache-2.0
// Provides what identifies a process and its launch to the other processes: host, build of the program, and
// the launcher's id of the launch.
#pragma once

#include <cstddef>
#include <cstring>
#include <fcntl.h>
#include <link.h>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>

#include "tessera/comm/environment.hpp"
#include "tessera/comm/rendezvous.hpp"
#include "tessera/comm/socket.hpp"
#include "tessera/config.hpp"
#include "tessera/core/error.hpp"

namespace tessera {
inline namespace v0 {
namespace comm {
namespace detail {

/// Returns the first line of a file, or "" if the file cannot be read.
inline std::string line_of(char const* path) {
  char text[256] = {};
  Descriptor const file(::open(path, O_RDONLY | O_CLOEXEC));
  ssize_t const size = file ? ::read(file.get(), text, sizeof text - 1) : 0;
  std::string_view const all(text, size > 0 ? static_cast<std::size_t>(size) : 0);
  return std::string(all.substr(0, all.find('\n')));
}

/// Returns a text that identifies the environment of this process: the boot id of the host, its /dev/shm and
/// the PID namespace. Two processes with equal texts can share memory.
inline std::string machine_text() {
  struct ::stat memory {
  }, processes{};
  ::stat("/dev/shm", &memory);
  ::stat("/proc/self/ns/pid", &processes);
  return sentence({line_of("/proc/sys/kernel/random/boot_id"), ":", memory.st_dev, ":", processes.st_ino});
}

/// Returns the build id of this program, a hash of the content that the linker stores in the program. Returns
/// "" if the program has no build id.
inline std::string build_id() {
  std::string id;
  ::dl_iterate_phdr(
      [](dl_phdr_info* program, std::size_t, void* to) {
        for (int i = 0; i < program->dlpi_phnum; ++i) {
          auto const& segment = program->dlpi_phdr[i];
          if (segment.p_type != PT_NOTE) continue;
          auto const* at = reinterpret_cast<char const*>(program->dlpi_addr + segment.p_vaddr);
          char const* const end = at + segment.p_memsz;
          while (at + sizeof(ElfW(Nhdr)) <= end) {
            auto const& note = *reinterpret_cast<ElfW(Nhdr) const*>(at);
            char const* const name = at + sizeof note;
            char const* const content = name + (note.n_namesz + 3u) / 4 * 4;
            if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0)
              static_cast<std::string*>(to)->assign(content, note.n_descsz);
            at = content + (note.n_descsz + 3u) / 4 * 4;
          }
        }
        return 1;  // stops after the program, which is the first object; the others are libraries
      },
      &id);
  return id;
}

/// Fills in `hello.key` and `hello.parent`, which identify a launch. The key contains the address of rank 0
/// and, if the launcher sets one, an id of the launch such as SLURM_JOB_ID. Without such an id, two launches
/// can have equal keys; then the id of the parent process distinguishes them.
inline void name_launch(LaunchEnvironment const& launch, GetEnvironment const& get, Hello& hello) {
  hello.key = launch.source;
  bool numbered = launch.master_port_taken;  // only one launcher at a time can listen on a port
  for (char const* name :
       {"TESSERA_LAUNCH", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "PMIX_NAMESPACE", "PMI_JOBID",
        "SLURM_STEP_ID", "TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"}) {
    char const* const value = get(name);
    if (!value || !*value) continue;
    hello.key += sentence({" ", name, "=", value});
    numbered = numbered || std::string_view(name).find("TORCHELASTIC") != 0;
  }
  hello.key += sentence({" at ", launch.master_address, ":", launch.master_port});
  if (!numbered) hello.parent = std::to_string(::getppid());
}

/// Returns advice for the end of an error message about ranks that do not connect: how to start all ranks
/// with this launcher.
inline std::string launch_advice(LaunchEnvironment const& launch) {
  std::string const count = std::to_string(launch.world);
  if (started_by_script(launch))
    return sentence({"start each rank from 0 to ", launch.world - 1,
                     " once, with its own RANK and with the same WORLD_SIZE, MASTER_ADDR and MASTER_PORT"});
  if (launch.source == "torchrun")
    return "start one torchrun on each host, with the same --nnodes, --nproc-per-node, --master-addr and "
           "--master-port";
  if (launch.source == "deepspeed")
    return "start the run once, as deepspeed --no_python --num_gpus N PROGRAM, or with a hostfile";
  if (launch.source == "SLURM") return "start all ranks with one srun --ntasks=" + count;
  return "start all ranks with one mpirun -np " + count;
}

}  // namespace detail

}  // namespace comm
}  // namespace v0
}  // namespace tessera
