// SPDX-License-Identifier: Apache-2.0
// Measures copies between the GPU and pinned host memory, in each direction and in both at once, copies
// within the GPU, and the allocation of zeroed pinned host memory, by Tessera and by cudaMallocHost. For host
// copies, bytes/s counts the bytes in all directions. For copies within the GPU, bytes/s and of_copy count
// both reads and writes.
#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>

#include "cuda_benchmark.cuh"

namespace {

namespace ts = tessera;
using gpu::require;
using Clock = std::chrono::steady_clock;

enum class Direction { up, down, both };

/// Measures host copies of `bytes` bytes in one or both directions. The time is the GPU's, from the start of
/// the first copy to the end of the last.
void link(benchmark::State& state, Direction direction, std::int64_t bytes) {
  gpu::guarded(state, [&] {
    gpu::Machine& on = gpu::machine();
    ts::DeviceArena<ts::Cuda> device(2 * bytes);
    ts::Arena<ts::cuda::PinnedMemory> host(2 * bytes);
    ts::cuda::Stream const other = ts::cuda::make_stream();
    ts::cuda::Event const begun = ts::cuda::make_event(), ended = ts::cuda::make_event();
    auto const copies = [&](std::int64_t count) {
      return on.seconds([&] {
        cudaStream_t const stream = on.context.stream(),
                           down = direction == Direction::both ? other.get() : stream;
        auto const size = static_cast<std::size_t>(bytes);
        if (direction == Direction::both) {
          require(cudaEventRecord(begun.get(), stream), "cudaEventRecord");
          require(cudaStreamWaitEvent(down, begun.get(), 0), "cudaStreamWaitEvent");
        }
        for (std::int64_t i = 0; i < count; ++i) {
          if (direction != Direction::down)
            require(cudaMemcpyAsync(device.base(), host.base(), size, cudaMemcpyHostToDevice, stream),
                    "cudaMemcpyAsync");
          if (direction != Direction::up)
            require(cudaMemcpyAsync(host.base() + bytes, device.base() + bytes, size, cudaMemcpyDeviceToHost,
                                    down),
                    "cudaMemcpyAsync");
        }
        if (direction == Direction::both) {
          require(cudaEventRecord(ended.get(), down), "cudaEventRecord");
          require(cudaStreamWaitEvent(stream, ended.get(), 0), "cudaStreamWaitEvent");
        }
      });
    };
    copies(1);
    // Each timed window copies at least 64 MiB, which lasts 1 ms or more on the links of today.
    std::int64_t const count = std::max<std::int64_t>(1, (std::int64_t{64} << 20) / bytes);
    while (state.KeepRunningBatch(count)) state.SetIterationTime(copies(count));
    using benchmark::Counter;
    double const moved = static_cast<double>(bytes) * (direction == Direction::both ? 2 : 1);
    state.counters["bytes/s"] =
        Counter(moved * static_cast<double>(state.iterations()), Counter::kIsRate, Counter::OneK::kIs1024);
  });
}

void on_device(benchmark::State& state, std::int64_t bytes) {
  gpu::guarded(state, [&] {
    gpu::Machine& on = gpu::machine();
    double const ceiling = gpu::copy_rate();
    ts::DeviceArena<ts::Cuda> from(bytes), to(bytes);
    auto const copies = [&](std::int64_t count) {
      return on.seconds([&] {
        for (std::int64_t i = 0; i < count; ++i)
          require(cudaMemcpyAsync(to.base(), from.base(), static_cast<std::size_t>(bytes),
                                  cudaMemcpyDeviceToDevice, on.context.stream()),
                  "cudaMemcpyAsync");
      });
    };
    copies(1);
    while (state.KeepRunningBatch(8)) state.SetIterationTime(copies(8));
    using benchmark::Counter;
    double const moved = 2.0 * static_cast<double>(bytes) * static_cast<double>(state.iterations());
    state.counters["bytes/s"] = Counter(moved, Counter::kIsRate, Counter::OneK::kIs1024);
    state.counters["of_copy"] = Counter(moved / ceiling, Counter::kIsRate);
  });
}

/// Measures how long it takes to allocate and free `bytes` bytes of pinned memory by map() and
/// unmap(address).
void pin(benchmark::State& state, std::int64_t bytes, auto map, auto unmap) {
  gpu::guarded(state, [&] {
    gpu::machine();
    double freeing = 0;
    for (auto _ : state) {
      auto const begin = Clock::now();
      auto* const memory = map();
      auto const mapped = Clock::now();
      unmap(memory);
      freeing += std::chrono::duration<double>(Clock::now() - mapped).count();
      state.SetIterationTime(std::chrono::duration<double>(mapped - begin).count());
    }
    using benchmark::Counter;
    state.counters["bytes/s"] =
        Counter(static_cast<double>(bytes * state.iterations()), Counter::kIsRate, Counter::OneK::kIs1024);
    state.counters["free_s"] = Counter(freeing, Counter::kAvgIterations);
  });
}

void register_all() {
  gpu::add_rates<>();
  auto const one = [](std::string const& name, auto run) {
    benchmark::RegisterBenchmark(name.c_str(), run)->UseManualTime()->Unit(benchmark::kMicrosecond);
  };
  for (std::int64_t const mib : {1, 16, 256}) {
    std::int64_t const bytes = mib << 20;
    std::string const size = std::string("/") + std::to_string(mib) + "MiB";
    one("host_to_device" + size, [=](benchmark::State& state) { link(state, Direction::up, bytes); });
    one("device_to_host" + size, [=](benchmark::State& state) { link(state, Direction::down, bytes); });
    one("both_ways" + size, [=](benchmark::State& state) { link(state, Direction::both, bytes); });
  }
  for (std::int64_t const mib : {256, 1024})  // larger than the L2 cache
    one("device_to_device/" + std::to_string(mib) + "MiB",
        [=](benchmark::State& state) { on_device(state, mib << 20); });
  std::int64_t const bytes = std::int64_t{4} << 30;
  one("pin/4GiB", [=](benchmark::State& state) {
    using Memory = ts::cuda::PinnedMemory;
    pin(
        state, bytes, [=] { return Memory::map(bytes); },
        [=](std::byte* memory) { Memory::unmap(memory, bytes); });
  });
  one("pin/4GiB/cudaMallocHost", [=](benchmark::State& state) {
    auto const map = [=] {
      void* memory = nullptr;
      require(cudaMallocHost(&memory, static_cast<std::size_t>(bytes)), "cudaMallocHost");
      std::memset(memory, 0, static_cast<std::size_t>(bytes));
      return memory;
    };
    pin(state, bytes, map, [](void* memory) { require(cudaFreeHost(memory), "cudaFreeHost"); });
  });
}

}  // namespace

int main(int argc, char** argv) {
  register_all();
  return gpu::run(argc, argv);
}
