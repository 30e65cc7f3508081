// SPDX-License-Identifier: Apache-2.0
// Defines the functions of train/device_probe.hpp for GPUs.
#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "tessera/backend/cuda/products/measured_plans.cuh"
#include "tessera/cuda.cuh"
#include "tessera/train/device_probe.hpp"

namespace tessera {
inline namespace v0 {
namespace detail {
namespace {

/// Returns the rate of y = x w with n x n matrices of T, in FLOP/s. Returns nullopt if the matrices do not
/// fit in memory.
template <class T>
std::optional<double> measured_product_rate(std::int64_t n, Math const& math) {
  struct Current {
    Current() { cudaGetDevice(&device); }
    ~Current() { cudaSetDevice(device); }
    int device = 0;
  } const current;
  Context<Cuda>::select(0);
  std::size_t const bytes = static_cast<std::size_t>(n * n) * sizeof(T);
  std::size_t const scratch_bytes = Context<Cuda>::workspace_bytes(1, n, math.product);
  cuda::ScopedMemory const x(bytes), w(bytes), y(bytes), workspace(scratch_bytes);
  for (cuda::ScopedMemory const* memory : {&x, &w, &y, &workspace})
    if (!memory->get()) return std::nullopt;
  Context<Cuda> context(1, {static_cast<std::byte*>(workspace.get()), scratch_bytes}, nullptr, math);
  // Fills the operands with random values. With zeros, the GPU would draw less power and run at higher
  // clocks.
  auto const fill = [&](cuda::ScopedMemory const& to, std::uint32_t seed) {
    cuda::fill_operand<<<static_cast<unsigned>((n * n + 255) / 256), 256, 0, context.stream()>>>(
        cuda::data_type<T>, n * n, seed, to.get());
  };
  fill(x, 1);
  fill(w, 2);
  auto const matrix = [n](cuda::ScopedMemory const& of) {
    return Tensor<T, Cuda>(static_cast<T*>(of.get()), Shape{n, n});
  };
  auto const multiply = [&] {
    ops::linear<T, Cuda>(context, matrix(x), ops::Operand<T, Cuda>{matrix(w)}, matrix(y));
  };
  cuda::Event const begin = cuda::make_event(cudaEventDefault), end = cuda::make_event(cudaEventDefault);
  for (int warm = 0; warm < 2; ++warm) multiply();
  std::array<float, 5> times{};
  for (float& each : times) {
    context.check(cudaEventRecord(begin.get(), context.stream()), "cudaEventRecord");
    multiply();
    context.check(cudaEventRecord(end.get(), context.stream()), "cudaEventRecord");
    context.check(cudaEventSynchronize(end.get()), "cudaEventSynchronize");
    context.check(cudaEventElapsedTime(&each, begin.get(), end.get()), "cudaEventElapsedTime");
  }
  context.synchronize();
  context.raise();
  double const size = static_cast<double>(n), least = *std::min_element(times.begin(), times.end());
  return least > 0.0 ? std::optional(2.0 * size * size * size / (least * 1e-3)) : std::nullopt;
}

/// Returns the product rate in the format of the recipe, in FLOP/s. The matrices are large enough to keep any
/// GPU busy. One product needs only milliseconds on most GPUs.
std::optional<double> measured_product_rate(RecipeTable const& recipe) {
  Math const math = Math::of(recipe);
  switch (recipe.types.activation) {
    case DType::f64:
      return measured_product_rate<double>(2048, math);
    case DType::f16:
      return measured_product_rate<half>(8192, math);
    case DType::bf16:
      return measured_product_rate<bfloat16>(8192, math);
    case DType::f32:
      return measured_product_rate<float>(4096, math);
    case DType::tf32:
    case DType::bf16x6:
    case DType::bf16x3:
    case DType::u8:
      break;
  }
  return std::nullopt;
}

}  // namespace
}  // namespace detail

std::optional<double> product_rate(RecipeTable const& recipe) {
  if (recipe.device != Device::cuda) return std::nullopt;
  static std::mutex mutex;
  static std::map<std::string, std::optional<double>> known;
  std::lock_guard const lock(mutex);
  std::optional<double>& rate = known[std::string(recipe.names.precision)];
  try {
    if (!rate) rate = detail::measured_product_rate(recipe);
  } catch (Error const&) {  // the rate is only for reports, so an error must not end the program
  }
  return rate;
}

std::vector<double> device_collective_seconds(comm::Comm const& comm,
                                              std::span<comm::Request const> requests) {
  std::int64_t largest = 0;
  for (comm::Request const& request : requests) largest = std::max(largest, request.bytes * comm.world());
  auto const bytes = static_cast<std::size_t>(largest);
  cuda::ScopedMemory const send(bytes);
  auto const receive = std::make_shared<cuda::ScopedMemory>(bytes);
  if (!comm::unanimous(comm, send.get() && receive->get())) return {};
  comm::Transport& transport = comm.transport();
  // A trainer shares its memory too, so that its collectives can use copy engines.
  std::shared_ptr<void> const shared =
      transport.share(receive, static_cast<std::byte*>(receive->get()), largest, 0);
  cuda::Stream const stream = cuda::make_stream();
  cuda::Event const begin = cuda::make_event(cudaEventDefault), end = cuda::make_event(cudaEventDefault);
  for (void* const memory : {send.get(), receive->get()})
    cuda::require(cudaMemsetAsync(memory, 0, bytes, stream.get()), "cudaMemsetAsync");
  // At its end, makes the collectives of this rank use host memory again.
  struct OnStream {
    OnStream(comm::Transport& of, cudaStream_t stream) : transport(of) { transport.on_stream(stream); }
    ~OnStream() { transport.on_stream(nullptr); }
    comm::Transport& transport;
  } const on_stream(transport, stream.get());
  auto const is_done = [&] {
    cudaError_t const status = cudaEventQuery(end.get());
    if (status == cudaErrorNotReady) return false;
    cuda::require(status, "cudaEventQuery");
    return true;
  };
  std::vector<double> all;
  for (comm::Request const& request : requests) {
    constexpr int calls = 4;
    bool const one_buffer = request.move == Move::all_reduce || request.move == Move::broadcast;
    void* const from = one_buffer ? receive->get() : send.get();
    std::array<float, 8> times{};
    for (float& each : times) {
      cuda::require(cudaEventRecord(begin.get(), stream.get()), "cudaEventRecord");
      for (int call = 0; call < calls; ++call)
        transport.run(request.move, request.bytes, from, receive->get(), {"measure"}, {}, request.root,
                      request.dtype);
      cuda::require(cudaEventRecord(end.get(), stream.get()), "cudaEventRecord");
      transport.await(is_done, "timed collectives");
      cuda::require(cudaEventElapsedTime(&each, begin.get(), end.get()), "cudaEventElapsedTime");
    }
    // The first round connects the GPUs, so only the other seven count.
    std::sort(times.begin() + 1, times.end());
    all.push_back(times[4] * 1e-3 / calls);
  }
  return all;
}

std::optional<std::int64_t> allocated_bytes(Device device, int index) {
  if (device != Device::cuda) return std::nullopt;
  return cuda::DeviceMemory::held(index);
}

}  // namespace v0
}  // namespace tessera
