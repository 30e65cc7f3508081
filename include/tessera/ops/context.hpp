// SPDX-License-Identifier: Apache-2.0
// Defines OwningContext, a context for programs that call operations without a trainer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tessera/backend/cpu/context.hpp"
#include "tessera/backend/math.hpp"
#include "tessera/core/dtype.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/operation.hpp"
#include "tessera/core/place.hpp"
#include "tessera/detail/affinity.hpp"
#include "tessera/tensor/arena.hpp"

namespace tessera {
inline namespace v0 {

struct ContextOptions {
  int threads = 0;  ///< threads for work on the CPU; 0: one for each core of the affinity mask
  int device = 0;   ///< the number of the GPU; the CPU has number 0
  /// The arithmetic of the operations. math.product is the format in which fp32 tensors are multiplied: f32,
  /// or on a GPU also tf32, bf16x6 or bf16x3. Tensors of other types are multiplied in their own format.
  Math math{};
};

namespace detail {

/// Throws Error(usage) or Error(unsupported) for options that a context on Place cannot have.
template <class Place>
void check(ContextOptions const& options) {
  constexpr DeviceInfo device = info_of(Place::device);
  constexpr int max_threads = 1024;
  if (options.threads < 0 || options.threads > max_threads)
    throw_error(ErrorKind::usage, {"a context got ", options.threads, " threads; choose 1 to ", max_threads,
                                   ", or 0 for one thread per core"});
  if (options.device < 0 || (options.device > 0 && device.on_cores))
    throw_error(ErrorKind::usage, {"a context on ", Place::name, " got the device ", options.device,
                                   device.on_cores ? "; the CPU is device 0" : "; GPUs are numbered from 0"});
  DType const product = options.math.product;
  if (product != DType::f32 && !needs_tensor_cores(product))
    throw_error(ErrorKind::usage,
                {"a context got math.product ", name_of(product),
                 ", which says how fp32 tensors are multiplied; choose DType::f32, tf32, bf16x6 or bf16x3"});
  if (needs_tensor_cores(product) && !device.tensor_cores)
    throw_error(ErrorKind::unsupported, {"a context on ", Place::name, " cannot multiply in ",
                                         name_of(product), ", which needs a GPU; choose DType::f32"});
}

/// The workspace of an OwningContext. It is a base class, so that it exists before the context and after it.
template <class Place>
struct OwnWorkspace {
  explicit OwnWorkspace(ContextOptions const& options) {
    check<Place>(options);
    Context<Place>::select(options.device);
    threads = options.threads > 0 ? options.threads : affinity::core_count();
    memory = DeviceArena<Place>(
        static_cast<std::int64_t>(Context<Place>::workspace_bytes(threads, 0, options.math.product)));
  }
  std::span<std::byte> bytes() const { return {memory.base(), static_cast<std::size_t>(memory.bytes())}; }

  int threads = 1;
  DeviceArena<Place> memory;
};

}  // namespace detail

/// A context that owns its workspace: everything that operations on one device need. Pass it to the functions
/// of ops/. Only one thread at a time may use it.
///
/// On Cpu, an operation has ended when its function returns. On Cuda, an operation is only enqueued, in the
/// order of the calls; `download` and `wait` wait for it. The constructor makes the GPU current for the
/// calling thread, and allocates 64 MiB of its memory (320 MiB with bf16x6 and bf16x3). Throws Error(usage)
/// for a wrong option, Error(unsupported) if the GPU cannot be used, and Error(out_of_memory).
template <class Place>
class OwningContext : private detail::OwnWorkspace<Place>, public Context<Place> {
 public:
  explicit OwningContext(ContextOptions const& options = {})
      : detail::OwnWorkspace<Place>(options),
        Context<Place>(this->threads, this->bytes(), nullptr, options.math) {}
  /// Waits for all enqueued work.
  ~OwningContext() { this->synchronize(); }

  /// Waits for all enqueued work. Throws Error(failed) with the first failure, and with the name of its
  /// operation.
  void wait() {
    this->synchronize();
    if constexpr (!Context<Place>::immediate) this->raise();
  }
};

}  // namespace v0
}  // namespace tessera
