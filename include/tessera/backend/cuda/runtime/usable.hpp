// SPDX-License-Identifier: Apache-2.0
// What stands between a program and its GPU, as a sentence. For any compiler: select_device asks CUDA.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace tessera {
inline namespace v0 {
namespace cuda {

/// What CUDA says of a program and the GPU that it asked for. Versions are as CUDA writes them, 13000 for
/// 13.0, and capabilities like 90 for 9.0.
struct DeviceAnswers {
  int runtime = 0;                     ///< what the program was compiled with
  int driver = 0;                      ///< the newest that the driver serves; 0 without a driver
  std::optional<std::string> visible;  ///< CUDA_VISIBLE_DEVICES, where it is set
  std::string failure;                 ///< why GPUs could not be counted, unless it is that there are none
  int count = 0;                       ///< GPUs that the program may use
  int device = 0;                      ///< the one that it asked for; what follows is of that one
  std::string name;
  int capability = 0;
  bool has_code = true;       ///< the program has code that runs there
  std::vector<int> compiled;  ///< the capabilities that it was compiled for
};

namespace detail {

inline std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version / 10 % 100);
}
inline std::string capability_text(int capability) {
  return std::to_string(capability / 10) + "." + std::to_string(capability % 10);
}

}  // namespace detail

/// Why the GPU cannot be used, and the way out; nothing when it can.
inline std::optional<std::string> why_unusable(DeviceAnswers const& all) {
  using detail::capability_text;
  using detail::version_text;
  std::string const start = "no CUDA device can be used: ", otherwise = ", or use the CPU";
  if (all.count == 0) {
    if (all.driver == 0)
      return start +
             "NVIDIA's driver (libcuda.so.1) was not found; install it, in a container run with "
             "--gpus all" +
             otherwise;
    if (all.driver / 1000 < all.runtime / 1000)
      return start + "the driver serves CUDA " + version_text(all.driver) +
             " and older, and this program was compiled with CUDA " + version_text(all.runtime) +
             "; install a driver that serves CUDA " + std::to_string(all.runtime / 1000) +
             ".0 or newer (nvidia-smi shows it)" + otherwise;
    if (!all.failure.empty()) return start + all.failure + "; what nvidia-smi says may help" + otherwise;
    if (all.visible)
      return start + "CUDA_VISIBLE_DEVICES is '" + *all.visible +
             "', which leaves this program none; unset it, or name GPUs of this machine such as 0,1" +
             otherwise;
    return start +
           "the driver finds no GPU; run on a machine with one (nvidia-smi lists them), in a container "
           "with --gpus all" +
           otherwise;
  }
  if (all.device >= all.count)
    return std::string("GPU ") + std::to_string(all.device) + " was asked for, but there are " +
           std::to_string(all.count) + "; use fewer ranks";
  if (all.has_code) return {};
  std::string const gpu = std::string("GPU ") + std::to_string(all.device) + " (" + all.name +
                          ") has compute capability " + capability_text(all.capability) + ", and ";
  if (all.capability < 80) return gpu + "8.0 is the least that can be used; take a newer GPU" + otherwise;
  std::string compiled;
  for (std::size_t i = 0; i < all.compiled.size(); ++i)
    compiled += (i == 0                         ? ""
                 : i + 1 == all.compiled.size() ? " and "
                                                : ", ") +
                capability_text(all.compiled[i]);
  bool const old_driver = all.driver < all.runtime;
  return gpu + "this program was compiled for " + compiled +
         " alone; configure with -DCMAKE_CUDA_ARCHITECTURES=" + std::to_string(all.capability) +
         (all.capability == 90 ? "a" : "") + "-real, or for every GPU with -DTESSERA_FAT=ON" +
         (old_driver ? ", or renew the driver, which serves CUDA " + version_text(all.driver) +
                           " and translates no code of CUDA " + version_text(all.runtime) + "'s compiler"
                     : "");
}

}  // namespace cuda
}  // namespace v0
}  // namespace tessera
