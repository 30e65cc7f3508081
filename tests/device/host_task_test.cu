// SPDX-License-Identifier: Apache-2.0
// Tests host functions that run between operations of a GPU stream. Covers their order relative to copies in
// both directions, with and without graphs, any number of steps in flight, several streams at once, and
// failures of the function and of the GPU.
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include <climits>
#include <doctest/doctest.h>

#include "tessera/backend/cpu/packet.hpp"

#include "device/device.hpp"

namespace {

using namespace test;

/// A sequence of GPU work that downloads values from the GPU, changes them in a host function and uploads
/// them again. The values are in three chunks. Chunk c has three operations: download (number 3c), host
/// function (3c + 1) and upload (3c + 2).
struct RoundTrip {
  static constexpr int chunks = 3;
  static constexpr std::int64_t elements = 200'000;  // per chunk
  static constexpr std::uint32_t factor = 1664525, summand = 1013904223;

  struct Chunk {
    std::uint32_t* values = nullptr;
    static void run(Context<Cpu>& host, void* data) {
      std::uint32_t* const values = static_cast<Chunk*>(data)->values;
      cpu::for_blocks(host.pool(), elements, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t i = begin; i < end; ++i) values[i] = values[i] * factor + summand;
      });
    }
  };

  explicit RoundTrip(Context<Cuda>& gpu) : context(gpu) {
    for (int chunk = 0; chunk < chunks; ++chunk)
      tasks[static_cast<std::size_t>(chunk)].values =
          reinterpret_cast<std::uint32_t*>(pinned.base()) + chunk * elements;
    context.reserve(3 * chunks, 0);
    cuda::require(cudaMemset(device.data(), 0, bytes), "cudaMemset");
    cuda::require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
  void enqueue() {
    for (int chunk = 0; chunk < chunks; ++chunk) {
      std::byte* const there = device.data() + chunk * 4 * elements;
      auto* const here = reinterpret_cast<std::byte*>(tasks[static_cast<std::size_t>(chunk)].values);
      auto const copy = [&](std::byte* to, std::byte const* from) {
        context.enqueue({"copy", 0, 0}, [&] {
          context.check(cudaMemcpyAsync(to, from, 4 * elements, cudaMemcpyDefault, context.stream()),
                        "cudaMemcpyAsync");
        });
      };
      std::array<int, 1> const down{3 * chunk}, task{3 * chunk + 1};
      context.begin(3 * chunk, Lane::download, {});
      copy(here, there);
      context.end(3 * chunk, true);
      context.begin(3 * chunk + 1, Lane::host, down);
      context.host_task({"task", 0, 0}, &Chunk::run, &tasks[static_cast<std::size_t>(chunk)]);
      context.end(3 * chunk + 1, true);
      context.begin(3 * chunk + 2, Lane::upload, task);
      copy(there, here);
      context.end(3 * chunk + 2, false);
    }
  }
  /// Runs the sequence `steps` times. Returns the number of values that are then wrong. All values are 0
  /// before the first time.
  std::int64_t wrong_after(int steps) const {
    std::uint32_t want = 0;
    for (int step = 0; step < steps; ++step) want = want * factor + summand;
    std::vector<std::uint32_t> got(chunks * elements);
    cuda::require(cudaMemcpy(got.data(), device.data(), bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
    std::int64_t wrong = 0;
    for (std::uint32_t value : got) wrong += value != want;
    return wrong;
  }

  static constexpr std::size_t bytes = 4 * chunks * elements;
  Context<Cuda>& context;
  DeviceBytes device{bytes};
  Arena<cuda::PinnedMemory> pinned{bytes};
  std::array<Chunk, chunks> tasks;
};

// The kernel is a template, as the kernels in the library's headers are.
template <class Int>
__global__ void trap_kernel(Int) {
  __trap();
}

}  // namespace

TEST_CASE("GPU: host tasks stand between copies down and up, in graphs and without, steps ahead") {
  TESSERA_NEEDS_GPU();
  for (bool const graph : {true, false}) {
    CAPTURE(graph);
    Gpu gpu;
    RoundTrip trip(gpu.context);
    int steps = 0;
    for (int const ahead : {1, 1, 100, 3}) {
      for (int step = 0; step < ahead; ++step, ++steps) gpu.context.replay(0, graph, [&] { trip.enqueue(); });
      gpu.finish();
      CHECK(trip.wrong_after(steps) == 0);
    }
  }
}

TEST_CASE("GPU: pinned memory of any size begins where a disk reads it") {
  TESSERA_NEEDS_GPU();
  std::vector<OffloadArena<Cuda>> arenas;
  for (std::int64_t bytes = 1; bytes <= std::int64_t{1} << 22; bytes = bytes * 3 + 512) {
    arenas.emplace_back(bytes);
    arenas.emplace_back(bytes);
  }
  for (auto const& arena : arenas) CHECK(reinterpret_cast<std::uintptr_t>(arena.base()) % disk_block == 0);
}

TEST_CASE("GPU: host tasks of several lanes run at the same time") {
  TESSERA_NEEDS_GPU();
  char const* const queues = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  if (queues && std::atoi(queues) < static_cast<int>(lane_count)) {
    MESSAGE("skipped: lanes share the queues of the GPU, so that one's wait holds another");
    return;
  }
  static std::atomic<int> met;
  static constexpr std::array lanes{Lane::host, Lane::disk, Lane::download};
  auto const meet = [](Context<Cpu>& host, void* lane) {
    met.fetch_add(1);
    auto const until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (met.load() % static_cast<int>(lanes.size()) != 0) {
      if (std::chrono::steady_clock::now() > until) throw std::runtime_error("alone");
      std::this_thread::yield();
    }
    if (host.pool().threads() != (*static_cast<Lane*>(lane) == Lane::host ? 3 : 1))
      throw std::runtime_error("threads");
  };
  for (bool const graph : {true, false}) {
    CAPTURE(graph);
    met = 0;
    DeviceBytes workspace(Context<Cuda>::workspace_bytes(1, 1));
    Context<Cuda> context(3, workspace.span());
    context.reserve(lanes.size(), 0);
    std::array names = lanes;
    for (int step = 0; step < 2; ++step) {
      context.replay(0, graph, [&] {
        for (std::size_t at = 0; at < lanes.size(); ++at) {
          context.begin(static_cast<int>(at), lanes[at], {});
          context.host_task({"meet", 0, 0}, meet, &names[at]);
          context.end(static_cast<int>(at), false);
        }
      });
      context.synchronize();
      CHECK_NOTHROW(context.raise());
    }
  }
}

TEST_CASE("GPU: what a host task throws reaches the caller, and nothing waits for ever") {
  TESSERA_NEEDS_GPU();
  for (bool const graph : {true, false}) {
    CAPTURE(graph);
    Gpu gpu;
    int runs = 0;
    gpu.context.reserve(2, 0);
    for (int step = 0; step < 3; ++step)
      gpu.context.replay(0, graph, [&] {
        gpu.context.begin(0, Lane::host, {});
        gpu.context.host_task(
            {"throws", 0, 0},
            [](Context<Cpu>&, void* data) {
              if (++*static_cast<int*>(data) == 2) throw Error(ErrorKind::data, "no more disk", 3);
            },
            &runs);
        gpu.context.end(0, false);
      });
    gpu.context.synchronize();
    CHECK(runs == 2);
    CHECK_THROWS_WITH_AS(gpu.context.raise(), doctest::Contains("no more disk"), Error);
  }
}

TEST_CASE("GPU child: a failed kernel before a host task" * doctest::skip()) {
  Gpu gpu;
  RoundTrip trip(gpu.context);
  gpu.context.replay(0, true, [&] { trip.enqueue(); });
  gpu.context.replay(1, true, [&] {
    gpu.context.begin(0, Lane::download, {});
    gpu.context.enqueue({"trap", 0, 0}, [&] { trap_kernel<<<1, 1, 0, gpu.context.stream()>>>(0); });
    gpu.context.end(0, true);
    std::array<int, 1> const trap{0};
    gpu.context.begin(1, Lane::host, trap);
    gpu.context.host_task(
        {"never", 0, 0}, [](Context<Cpu>&, void*) { std::_Exit(3); }, &gpu);
    gpu.context.end(1, false);
  });
  auto const until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!gpu.context.finished() && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(gpu.context.finished());
  CHECK_THROWS_AS(gpu.context.raise(), Error);
}

TEST_CASE("GPU: a failed kernel before a host task leaves nothing waiting") {
  TESSERA_NEEDS_GPU();
  // Runs in a child process, because a failed kernel makes the GPU unusable for its process.
  std::array<char, PATH_MAX> self{};
  REQUIRE(::readlink("/proc/self/exe", self.data(), self.size() - 1) > 0);
  std::string const command = "timeout 60 '" + std::string(self.data()) +
                              "' --no-skip --test-case='GPU child: a failed kernel*' > /dev/null 2>&1";
  CHECK(std::system(command.c_str()) == 0);
}
