// SPDX-License-Identifier: Apache-2.0
// Provides why_unusable, which explains in one sentence why a program cannot use a GPU. The explanation comes
// from facts that query_device (device.cuh) collects, so this file compiles without CUDA.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace tessera {
inline namespace v0 {
namespace cuda {

/// The facts about a program and its GPU, as CUDA reports them. A CUDA version is encoded as in CUDA: 13000
/// is version 13.0. A compute capability of 90 is 9.0.
struct DeviceAnswers {
  int runtime = 0;                     ///< the CUDA version that the program was compiled with
  int driver = 0;                      ///< the driver's newest CUDA version; 0 without a driver
  std::optional<std::string> visible;  ///< CUDA_VISIBLE_DEVICES, if set
  std::string failure;  ///< why CUDA failed to count the GPUs; empty if it counted them or found none
  int count = 0;        ///< the number of GPUs that the program may use
  int device = 0;       ///< the index of the requested GPU
  // `name` and `capability` describe the requested GPU. They and `compiled` are set only if has_code is
  // false.
  std::string name;
  int capability = 0;
  bool has_code = true;       ///< whether the program has code that this GPU runs
  std::vector<int> compiled;  ///< the capabilities that the program was compiled for
};

namespace detail {

inline std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version / 10 % 100);
}
inline std::string capability_text(int capability) {
  return std::to_string(capability / 10) + "." + std::to_string(capability % 10);
}

}  // namespace detail

/// Returns a sentence that says why the program cannot use the requested GPU and what to do about it. Returns
/// nothing if the program can use the GPU.
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
      return start + "the driver supports CUDA " + version_text(all.driver) +
             " and older, but this program was compiled with CUDA " + version_text(all.runtime) +
             "; install a driver that supports CUDA " + std::to_string(all.runtime / 1000) +
             ".0 or newer (nvidia-smi shows it)" + otherwise;
    if (!all.failure.empty()) return start + all.failure + "; run nvidia-smi for details" + otherwise;
    if (all.visible)
      return start + "CUDA_VISIBLE_DEVICES is '" + *all.visible +
             "', which hides all GPUs from this program; unset it, or name GPUs of this machine such as 0,1" +
             otherwise;
    return start +
           "the driver finds no GPU; run on a machine with one (nvidia-smi lists them), in a container "
           "with --gpus all" +
           otherwise;
  }
  if (all.device >= all.count)
    return std::string("GPU ") + std::to_string(all.device) +
           " was requested, but the number of visible GPUs is " + std::to_string(all.count) +
           "; use fewer ranks";
  if (all.has_code) return {};
  std::string const gpu = std::string("GPU ") + std::to_string(all.device) + " (" + all.name +
                          ") has compute capability " + capability_text(all.capability) + ", but ";
  if (all.capability < 80) return gpu + "at least 8.0 is needed; use a newer GPU" + otherwise;
  std::string compiled;
  for (std::size_t i = 0; i < all.compiled.size(); ++i)
    compiled += (i == 0                         ? ""
                 : i + 1 == all.compiled.size() ? " and "
                                                : ", ") +
                capability_text(all.compiled[i]);
  bool const old_driver = all.driver < all.runtime;
  return gpu + "this program was compiled only for " + compiled +
         "; configure with -DCMAKE_CUDA_ARCHITECTURES=" + std::to_string(all.capability) +
         (all.capability == 90 ? "a" : "") + "-real, or for every GPU with -DTESSERA_FAT=ON" +
         (old_driver ? ", or update the driver, which supports CUDA " + version_text(all.driver) +
                           " and cannot translate code from the compiler of CUDA " + version_text(all.runtime)
                     : "");
}

}  // namespace cuda
}  // namespace v0
}  // namespace tessera
