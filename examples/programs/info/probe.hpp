// SPDX-License-Identifier: Apache-2.0
// Detects NVIDIA's libraries and devices, MPI and disks. Every library is loaded at run time, so the program
// builds and runs on a machine without them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <dlfcn.h>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "tessera/backend/cuda/attention/attention_cudnn.hpp"
#include "tessera/data/file_bytes.hpp"

#include "machine/machine.hpp"

namespace programs {
using namespace tessera;
namespace info {

/// A part of the system, such as a library, and whether it is available.
struct Component {
  std::string name;
  bool okay = false;
  std::string detail;  ///< the version, or the reason why it is not available
};

/// A shared library. It is never unloaded, since unloading the library of a driver is possibly unsafe.
class Library {
 public:
  explicit Library(std::vector<char const*> const& names) {
    for (char const* name : names) {
      handle_ = ::dlopen(name, RTLD_LAZY | RTLD_LOCAL);
      if (handle_ != nullptr) return;
      if (reason_.empty()) reason_ = std::string(name) + " is not on the loader's path";
    }
  }
  explicit operator bool() const { return handle_ != nullptr; }
  std::string const& reason() const { return reason_; }

  /// Returns the function `name` of the library; null if the library does not have it.
  template <class Function>
  Function* function(char const* name) const {
    return handle_ == nullptr ? nullptr : reinterpret_cast<Function*>(::dlsym(handle_, name));
  }

 private:
  void* handle_ = nullptr;
  std::string reason_;
};

/// Calls `ask` in a child process and returns its result; nullopt if the child ended without a result. A
/// child process is necessary because cuDNN ends the calling process if it cannot load its parts.
inline std::optional<std::size_t> answer_of(std::size_t (*ask)()) {
  int ends[2];
  if (::pipe(ends) != 0) return std::nullopt;
  pid_t const child = ::fork();
  if (child == 0) {
    if (int const nowhere = ::open("/dev/null", O_WRONLY); nowhere >= 0) ::dup2(nowhere, 2);
    std::size_t const answer = ask();
    ::_exit(::write(ends[1], &answer, sizeof answer) == static_cast<ssize_t>(sizeof answer) ? 0 : 1);
  }
  ::close(ends[1]);
  std::size_t answer = 0;
  bool const whole =
      child > 0 && ::read(ends[0], &answer, sizeof answer) == static_cast<ssize_t>(sizeof answer);
  ::close(ends[0]);
  if (child > 0) ::waitpid(child, nullptr, 0);
  return whole ? std::optional(answer) : std::nullopt;
}

/// Returns the path of the first executable with the name `program` in PATH; "" if there is none.
inline std::string in_path(std::string const& program) {
  char const* const path = std::getenv("PATH");
  std::string_view rest = path == nullptr ? "" : path;
  while (!rest.empty()) {
    std::size_t const end = rest.find(':');
    std::string const file = std::string(rest.substr(0, end)) + "/" + program;
    if (::access(file.c_str(), X_OK) == 0) return file;
    rest = end == rest.npos ? "" : rest.substr(end + 1);
  }
  return {};
}

/// Returns a CUDA version as text: 13000 is "13.0", 12040 is "12.4".
inline std::string cuda_version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

/// One CUDA device.
struct Gpu {
  int index = 0;
  std::string name;
  std::int64_t memory_bytes = 0;
  std::string capability;
  std::vector<int> peers;  ///< the devices whose memory this device can access directly
};

/// NVIDIA's driver and its devices, as the CUDA driver API reports them. The calls use plain types instead of
/// the types of cuda.h: a CUresult is an int, and 0 is success.
struct Driver {
  Component component{"NVIDIA driver", false, {}};
  std::vector<Gpu> devices;
};

inline Driver probe_driver() {
  Driver found;
  Library const cuda({"libcuda.so.1"});
  if (!cuda) {
    found.component.detail = cuda.reason() + "; no NVIDIA driver is installed";
    return found;
  }
  auto* const init = cuda.function<int(unsigned)>("cuInit");
  auto* const version = cuda.function<int(int*)>("cuDriverGetVersion");
  auto* const count = cuda.function<int(int*)>("cuDeviceGetCount");
  auto* const device_of = cuda.function<int(int*, int)>("cuDeviceGet");
  auto* const name_of = cuda.function<int(char*, int, int)>("cuDeviceGetName");
  auto* const memory_of = cuda.function<int(std::size_t*, int)>("cuDeviceTotalMem_v2");
  auto* const attribute = cuda.function<int(int*, int, int)>("cuDeviceGetAttribute");
  auto* const peer = cuda.function<int(int*, int, int)>("cuDeviceCanAccessPeer");
  if (!init || !version || !count || !device_of || !name_of || !memory_of || !attribute || !peer) {
    found.component.detail = "libcuda.so.1 lacks functions; the driver is damaged or not NVIDIA's";
    return found;
  }
  int number = 0, devices = 0;
  version(&number);
  if (int const code = init(0); code != 0) {
    found.component.detail = "libcuda.so.1 is there (CUDA " + cuda_version_text(number) +
                             "), but cuInit returns " + std::to_string(code) +
                             (code == 100 ? ", no device" : "");
    return found;
  }
  count(&devices);
  std::string const release = cli::trimmed(cli::value_in("/proc/driver/nvidia/version", "NVRM version", ':'));
  found.component = {"NVIDIA driver", devices > 0,
                     "CUDA " + cuda_version_text(number) + ", " + std::to_string(devices) +
                         (devices == 1 ? " device" : " devices") + (release.empty() ? "" : ", " + release)};
  constexpr int capability_major = 75, capability_minor = 76;
  for (int index = 0; index < devices; ++index) {
    int device = 0, major = 0, minor = 0;
    char name[128] = {};
    std::size_t bytes = 0;
    if (device_of(&device, index) != 0) continue;
    name_of(name, sizeof name - 1, device);
    memory_of(&bytes, device);
    attribute(&major, capability_major, device);
    attribute(&minor, capability_minor, device);
    Gpu one{index,
            name,
            static_cast<std::int64_t>(bytes),
            std::to_string(major) + "." + std::to_string(minor),
            {}};
    for (int other = 0; other < devices; ++other) {
      int reachable = 0, handle = 0;
      if (other != index && device_of(&handle, other) == 0 && peer(&reachable, device, handle) == 0 &&
          reachable != 0)
        one.peers.push_back(other);
    }
    found.devices.push_back(std::move(one));
  }
  return found;
}

inline Component probe_toolkit() {
  std::string const compiler = in_path("nvcc");
  std::string const standard = "/usr/local/cuda/bin/nvcc";
  if (!compiler.empty()) return {"CUDA toolkit", true, compiler};
  if (::access(standard.c_str(), X_OK) == 0) return {"CUDA toolkit", true, standard + " (not in PATH)"};
  return {"CUDA toolkit", false, "no nvcc in PATH or /usr/local/cuda; needed to build for GPUs only"};
}

inline Component probe_nccl() {
  Library const nccl({"libnccl.so.2", "libnccl.so"});
  auto* const version = nccl.function<int(int*)>("ncclGetVersion");
  int number = 0;
  if (!nccl || !version || version(&number) != 0) return {"NCCL", false, nccl ? "no version" : nccl.reason()};
  return {"NCCL", true,
          std::to_string(number / 10000) + "." + std::to_string(number / 100 % 100) + "." +
              std::to_string(number % 100)};
}

inline Component probe_cudnn() {
  Library const cudnn({"libcudnn.so.9", "libcudnn.so"});
  auto* const version = cudnn.function<std::size_t()>("cudnnGetVersion");
  if (!version) return {"cuDNN", false, cudnn ? "no version" : cudnn.reason()};
  auto const number = answer_of(version);
  if (!number)
    return {"cuDNN", false, "a process that queries its version crashes: its parts cannot be loaded"};
  return {"cuDNN", true,
          std::to_string(*number / 10000) + "." + std::to_string(*number / 100 % 100) + "." +
              std::to_string(*number % 100) +
              (cuda::has_cudnn_attention() ? ", part of this build"
                                           : ", not part of this build (-DTESSERA_CUDNN=ON)")};
}

inline Component probe_mpi() {
  for (char const* program : {"mpirun", "mpiexec", "srun"})
    if (std::string const file = in_path(program); !file.empty()) return {"process launcher", true, file};
  return {"process launcher", false, "no mpirun, mpiexec or srun in PATH; ranks are threads, none is needed"};
}

/// The free and the total bytes of the file system that contains `folder`; -1 if unknown.
struct Disk {
  std::string folder;
  std::int64_t free_bytes = -1, total_bytes = -1;
};

inline Disk disk_of(std::filesystem::path const& folder) {
  Disk disk{tessera::files::path_text(folder)};
  struct statvfs status {};
  if (::statvfs(folder.c_str(), &status) != 0) return disk;
  disk.free_bytes = static_cast<std::int64_t>(status.f_bavail) * static_cast<std::int64_t>(status.f_frsize);
  disk.total_bytes = static_cast<std::int64_t>(status.f_blocks) * static_cast<std::int64_t>(status.f_frsize);
  return disk;
}

}  // namespace info
}  // namespace programs
