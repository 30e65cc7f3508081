// SPDX-License-Identifier: Apache-2.0
// The program `ranks WHAT [mpi|nccl]` is one rank of a launch. By default its data moves as from_environment
// decides; with the second argument it moves through MPI or NCCL. WHAT is one of:
//   same              runs every collective, and compares the results with those of threads
//   large             sends more than 1 GiB in one message
//   mismatch          rank 1 requests a sum of another size
//   kind              rank 0 requests a gather instead of a sum
//   throw             rank 1 throws
//   kill              rank 1 kills itself with SIGKILL
//   stop              rank 1 stops itself with SIGSTOP
//   link              the last rank takes down the network of its host
//   network           prints the number of ranks on the host, and the network interface to other hosts
//   absent            rank 1 ends after it has found the other ranks and before it connects to them
//   leave             rank 1 returns early
// A rank that fails prints one line with the error, the exit code, and the seconds since its last collective
// ended. If nvcc compiles this source, the program has NCCL and no MPI; if another compiler does, it has MPI
// and no NCCL.
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#ifdef __CUDACC__
#include "tessera/comm/nccl.cuh"
#else
#include "tessera/comm/mpi.hpp"
#endif
#include "tessera/comm/processes.hpp"
#include "tessera/comm/run.hpp"
#include "tessera/core/numbers.hpp"

namespace ts = tessera;
using ts::DType;
using ts::comm::Comm;
using ts::comm::ProcessGroup;
using ts::comm::Transport;

namespace {

using Bytes = std::vector<std::byte>;

/// Returns the bytes of `count` values. The sum of these values over the ranks depends on the order of the
/// ranks.
Bytes values(DType dtype, std::int64_t count, int rank, unsigned seed) {
  Bytes bytes(static_cast<std::size_t>(count) * ts::size_of(dtype));
  ts::with_type(dtype, [&]<class T>(T*) {
    std::uint64_t state = seed * 1000003u + static_cast<unsigned>(rank) + 1;
    for (std::int64_t i = 0; i < count; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      auto const whole = static_cast<std::int32_t>(state >> 33) - (1 << 30);
      auto const value = static_cast<T>(static_cast<float>(whole) * (i % 3 ? 1e-9f : 1e-5f));
      std::memcpy(bytes.data() + static_cast<std::size_t>(i) * sizeof(T), &value, sizeof(T));
    }
  });
  return bytes;
}

/// Runs every collective in several sizes, number formats and groups. Returns the bytes of all results.
Bytes results(Transport& transport) {
  Bytes all;
  auto const keep = [&](Bytes const& bytes) { all.insert(all.end(), bytes.begin(), bytes.end()); };
  int const rank = transport.rank(), world = transport.world();
  std::vector<ProcessGroup> groups{transport.everyone()};
  if (world % 2 == 0 && world > 2) {
    groups.push_back(transport.over({rank / 2 * 2, 1, 2}));                // pairs of adjacent ranks
    groups.push_back(transport.over({rank % (world / 2), world / 2, 2}));  // pairs of distant ranks
  }
  unsigned seed = 0;
  for (ProcessGroup const& group : groups)
    for (std::int64_t const count : {0, 1, 7, 1000003})
      for (DType const dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
        if (count > 7 && dtype == DType::f64) continue;
        ++seed;
        auto const size = static_cast<std::int64_t>(ts::size_of(dtype));
        auto const own = [&](std::int64_t pieces) { return values(dtype, count * pieces, rank, seed); };
        auto const room = [&](std::int64_t pieces) {
          return Bytes(static_cast<std::size_t>(count * pieces * size));
        };
        int const root = static_cast<int>(seed) % group.count;
        Bytes from = own(group.count), to = room(group.count);
        transport.all_to_all(from.data(), to.data(), count * size, {"to all"}, 0, group);
        keep(to);
        from = own(1);
        transport.all_gather(from.data(), to.data(), count * size, {"gather"}, group);
        keep(to);
        to = room(group.count);
        transport.gather(root, from.data(), to.data(), count * size, {"root"}, group);
        keep(to);
        transport.broadcast(root, from.data(), count * size, {"broadcast"}, group);
        keep(from);
        from = own(1);
        transport.all_reduce(dtype, from.data(), count, {"sum"}, group);
        keep(from);
        from = own(group.count);
        to = room(1);
        transport.reduce_scatter(dtype, from.data(), to.data(), count, {"share"}, group);
        keep(to);
        int const index = group.index_of(rank);
        transport.begin_group();
        transport.send((index + 1) % group.count, from.data(), count * size, {"ring"}, group);
        transport.receive((index + group.count - 1) % group.count, to.data(), count * size, {"ring"}, group);
        transport.end_group();
        keep(to);
      }
  transport.barrier();
  return all;
}

/// Returns the FNV-1a hash of `bytes`.
std::uint64_t hash(Bytes const& bytes) {
  std::uint64_t value = 14695981039346656037u;
  for (std::byte const byte : bytes) value = (value ^ static_cast<std::uint64_t>(byte)) * 1099511628211u;
  return value;
}

void same(Comm const& comm) {
  std::vector<std::uint64_t> hashes(static_cast<std::size_t>(comm.world())), expected = hashes;
  std::uint64_t const own = hash(results(comm.transport()));
  comm.transport().gather(0, &own, hashes.data(), sizeof own);
  if (comm.is_root()) {
    ts::run(comm.world(), [&](Comm& thread) {
      expected[static_cast<std::size_t>(thread.rank())] = hash(results(thread.transport()));
    });
    if (hashes != expected) throw std::runtime_error("the results differ from those of threads");
    std::printf("the results of %d ranks through %s are those of threads\n", comm.world(),
                std::string(comm.transport().name()).c_str());
  }
}

void large(Comm const& comm) {
  std::size_t const bytes = (std::size_t{1} << 30) + 5;
  Bytes buffer(bytes, std::byte{comm.is_root() ? std::uint8_t{7} : std::uint8_t{0}});
  comm.transport().broadcast(0, buffer.data(), static_cast<std::int64_t>(bytes), {"large"});
  for (std::size_t const at : {std::size_t{0}, bytes / 2, bytes - 6, bytes - 5, bytes - 1})
    if (buffer[at] != std::byte{7}) throw std::runtime_error("a byte did not arrive");
  comm.transport().barrier();
  if (comm.is_root()) std::printf("%zu bytes have arrived\n", bytes);
}

using Clock = std::chrono::steady_clock;
Clock::time_point last_step = Clock::now();

void fail(Comm const& comm, std::string_view what) {
  int const victim = what == "link" ? comm.world() - 1 : what == "kind" ? 0 : 1;
  std::vector<float> values(100003, 1.0f);
  for (int step = 0; step < 1000; ++step) {
    bool const now = comm.rank() == victim && step == 20;
    if (now && what == "mismatch") values.resize(100001);
    if (now && what == "throw") throw std::runtime_error("the disk is full");
    if (now && what == "kill") std::raise(SIGKILL);
    if (now && what == "stop") std::raise(SIGSTOP);
    if (now && what == "link" && std::system("ip link set eth0 down") != 0)
      throw std::runtime_error("ip could not take down eth0");
    if (now && what == "leave") return;
    if (now && what == "kind") {
      std::vector<float> all(values.size() * static_cast<std::size_t>(comm.world()));
      comm.transport().gather(0, values.data(), all.data(), 400012, {"sum", "h.3", step});
    }
    comm.transport().all_reduce(DType::f32, values.data(), static_cast<std::int64_t>(values.size()),
                                {"sum", "h.3", step});
    last_step = Clock::now();
  }
}

#ifdef __CUDACC__
constexpr std::string_view other_transport = "nccl";
Comm through_other() { return ts::comm::nccl_from_environment(); }
#else
constexpr std::string_view other_transport = "mpi";
Comm through_other() {
  static std::shared_ptr<ts::comm::Launch> const launch = [] {
    auto found = ts::comm::launch_environment();
    auto const get = [](char const* name) -> char const* { return std::getenv(name); };
    ts::comm::mpi_link.meet(found, {});
    return std::make_shared<ts::comm::Launch>(found, get);
  }();
  launch->begin();
  return Comm(std::make_shared<ts::comm::Processes>(launch, std::make_unique<ts::comm::Mpi>(launch)));
}
#endif
Comm as_decided() { return ts::comm::from_environment(); }

}  // namespace

int main(int argc, char** argv) {
  std::string_view const what = argc > 1 ? argv[1] : "";
  Comm (*const create)() = argc > 2 && argv[2] == other_transport ? through_other : as_decided;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  int rank = -1;
  auto const report = [&](int code, char const* text) {
    double const seconds = std::chrono::duration<double>(Clock::now() - last_step).count();
    std::printf("rank %d, after %.1f s, exit code %d: %s\n", rank, seconds, code, text);
    return code;
  };
  try {
    if (what == "absent" && ts::comm::launch_of_process()->rank() == 1) return 0;
    if (what == "same") create().transport().barrier();
    Comm const comm = create();  // `same` tests the second communicator of a launch
    rank = comm.rank();
    if (what == "same")
      same(comm);
    else if (what == "network")
      std::printf("rank %d, one of %d ranks on its host, reaches other hosts through '%s'\n", rank,
                  comm.transport().ranks_on_host(),
                  ts::comm::launch_of_process()->network_interface().c_str());
    else if (what == "large")
      large(comm);
    else
      fail(comm, what);
    return 0;
  } catch (ts::Error const& error) {
    return report(ts::exit_code(error.kind()), error.what());
  } catch (std::exception const& error) {
    return report(1, error.what());
  }
}
