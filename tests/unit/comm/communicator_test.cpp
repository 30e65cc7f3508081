// SPDX-License-Identifier: Apache-2.0
// Tests collectives against serial code. The ranks are threads of this process.
#include "tessera/comm/communicator.hpp"

#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/comm/run.hpp"
#include "tessera/comm/sum.hpp"
#include "tessera/comm/threads.hpp"

#include "unit/allocation_support.hpp"

namespace {

namespace ts = tessera;
using ts::comm::Comm;
using ts::comm::Transport;

constexpr int worlds[] = {1, 2, 3, 5, 7, 8};
constexpr std::int64_t sizes[] = {0, 1, 3, 64, 1000, 4099};

/// Returns the byte at `index` of the buffer that rank `rank` sends. `round` is the number of the buffer if
/// the rank sends several.
std::uint8_t byte_of(int rank, std::int64_t index, std::int64_t round = 0) {
  return static_cast<std::uint8_t>(rank * 37 + index * 11 + index / 256 + round * 101);
}

std::vector<std::uint8_t> bytes_of(int rank, std::int64_t count, std::int64_t round = 0) {
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) bytes[static_cast<std::size_t>(i)] = byte_of(rank, i, round);
  return bytes;
}

/// Returns the value at `index` of the buffer of rank `rank`. Magnitudes are from 1e-4 to 1e4, with both
/// signs, so the sum over the ranks depends on the order of the additions.
float value_of(int rank, std::int64_t index) {
  std::uint32_t bits =
      static_cast<std::uint32_t>(rank) * 2654435761u + static_cast<std::uint32_t>(index) * 40503u + 1u;
  bits ^= bits >> 15;
  bits *= 2246822519u;
  bits ^= bits >> 13;
  float const scale[] = {1e-4f, 1e-2f, 1.f, 1e2f, 1e4f};
  return (static_cast<float>(bits & 0xffffu) / 32768.f - 1.f) * scale[(bits >> 16) % 5];
}

template <class T>
std::vector<T> values_of(int rank, std::int64_t count) {
  std::vector<T> values(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i)
    values[static_cast<std::size_t>(i)] = static_cast<T>(value_of(rank, i));
  return values;
}

/// Returns the sum over all ranks of their values_of<T>, in rank order, rounded once. All values are in
/// memory before they are added, so the compiler cannot fuse the multiplication in value_of with the
/// addition.
template <class T>
std::vector<T> sums_of(int world, std::int64_t count) {
  std::vector<std::vector<T>> values;
  for (int rank = 0; rank < world; ++rank) values.push_back(values_of<T>(rank, count));
  std::vector<T> sums(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < sums.size(); ++i) {
    auto sum = static_cast<ts::compute_t<T>>(values[0][i]);
    for (std::size_t rank = 1; rank < values.size(); ++rank)
      sum += static_cast<ts::compute_t<T>>(values[rank][i]);
    sums[i] = static_cast<T>(sum);
  }
  return sums;
}

template <class T>
bool same_bits(T const* left, T const* right, std::int64_t count) {
  return count == 0 || std::memcmp(left, right, static_cast<std::size_t>(count) * sizeof(T)) == 0;
}

/// Starts `world` ranks, which are threads, and calls fn(transport) on each. fn returns the number of its
/// wrong results, which must be 0.
template <class Fn>
void check_ranks(int world, Fn const& fn) {
  std::atomic<int> wrong{0};
  std::atomic<int> ran{0};
  ts::run(world, [&](Comm& comm) {
    wrong += fn(comm.transport());
    ++ran;
  });
  CAPTURE(world);
  CHECK(wrong == 0);
  CHECK(ran == world);
}

template <class T>
void check_reductions(int world, std::int64_t count) {
  check_ranks(world, [count](Transport& transport) {
    int wrong = 0;
    auto const all = sums_of<T>(transport.world(), count);
    auto buffer = values_of<T>(transport.rank(), count);
    transport.all_reduce(ts::dtype_of<T>, buffer.data(), count, {"reduce", "h.0", 0});
    wrong += !same_bits(buffer.data(), all.data(), count);

    std::int64_t const whole = count * transport.world();
    auto const sums = sums_of<T>(transport.world(), whole);
    auto send = values_of<T>(transport.rank(), whole);
    std::vector<T> recv(static_cast<std::size_t>(count));
    transport.reduce_scatter(ts::dtype_of<T>, send.data(), recv.data(), count, {"reduce", "h.0", 1});
    wrong += !same_bits(recv.data(), sums.data() + transport.rank() * count, count);
    // Tests reduce_scatter in place: the result is written to this rank's shard of `send`.
    transport.reduce_scatter(ts::dtype_of<T>, send.data(), send.data() + transport.rank() * count, count);
    wrong += !same_bits(send.data() + transport.rank() * count, recv.data(), count);
    return wrong;
  });
}

}  // namespace

TEST_CASE("collectives on bytes equal their serial reference") {
  for (int world : worlds)
    for (std::int64_t size : sizes)
      check_ranks(world, [size](Transport& transport) {
        int const rank = transport.rank();
        int const world_size = transport.world();
        int wrong = 0;

        auto const pieces = bytes_of(rank, size * world_size);
        std::vector<std::uint8_t> recv(pieces.size(), 0xee);
        transport.all_to_all(pieces.data(), recv.data(), size, {"reduce", "h.1", 0});
        for (int peer = 0; peer < world_size; ++peer)
          for (std::int64_t i = 0; i < size; ++i)
            wrong += recv[static_cast<std::size_t>(peer * size + i)] != byte_of(peer, rank * size + i);

        std::vector<std::uint8_t> gathered;
        for (int peer = 0; peer < world_size; ++peer) {
          auto const part = bytes_of(peer, size, 1);
          gathered.insert(gathered.end(), part.begin(), part.end());
        }
        auto const shard = bytes_of(rank, size, 1);
        std::vector<std::uint8_t> whole(gathered.size(), 0xee);
        transport.all_gather(shard.data(), whole.data(), size, {"gather", "h.1"});
        wrong += whole != gathered;

        std::vector<std::uint8_t> slotted(gathered.size(), 0xee);
        if (size > 0) std::memcpy(slotted.data() + rank * size, shard.data(), static_cast<std::size_t>(size));
        transport.all_gather(slotted.data() + rank * size, slotted.data(), size);
        wrong += slotted != gathered;

        for (int root = 0; root < world_size; ++root) {
          std::vector<std::uint8_t> at_root(rank == root ? gathered.size() : 0, 0xee);
          transport.gather(root, shard.data(), rank == root ? at_root.data() : nullptr, size);
          wrong += rank == root && at_root != gathered;

          auto buffer = bytes_of(rank, size, 2);
          transport.broadcast(root, buffer.data(), size, {"write_back", "h.1"});
          wrong += buffer != bytes_of(root, size, 2);
        }
        transport.barrier({"barrier"});
        return wrong;
      });
}

TEST_CASE("reductions sum in rank order and round once") {
  for (int world : worlds)
    for (std::int64_t count : {0, 1, 2, 7, 64, 1025, 3001}) {
      check_reductions<float>(world, count);
      check_reductions<double>(world, count);
      check_reductions<ts::half>(world, count);
      check_reductions<ts::bfloat16>(world, count);
    }
}

TEST_CASE("the order of a sum is visible in these values") {
  // The test above can detect a wrong order only if sums of these values depend on the order.
  int different = 0;
  for (std::int64_t i = 0; i < 1000; ++i) {
    float up = 0, down = 0;
    for (int rank = 0; rank < 5; ++rank) {
      up += value_of(rank, i);
      down += value_of(4 - rank, i);
    }
    different += up != down;
  }
  CHECK(different > 100);
}

TEST_CASE("sums convert half like the rest of the library") {
  int wrong = 0;
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
    ts::half value;
    value.bits = static_cast<std::uint16_t>(bits);
    float const wide = value;
    wrong +=
        std::bit_cast<std::uint32_t>(ts::comm::detail::widen(value)) != std::bit_cast<std::uint32_t>(wide);
  }
  CHECK(wrong == 0);
  // Tests the rounding of every 1021st float. Then tests the boundaries of rounding: the middle between any
  // two adjacent halves, and the two floats next to this middle.
  auto const narrow_bits = [](float value) { return ts::comm::detail::narrow<ts::half>(value).bits; };
  for (std::uint64_t bits = 0; bits < 0x100000000u; bits += 1021) {
    auto const value = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    wrong += narrow_bits(value) != ts::half(value).bits;
  }
  for (std::uint32_t bits = 0; bits < 0x7c00u; ++bits) {
    ts::half low, high;
    low.bits = static_cast<std::uint16_t>(bits);
    high.bits = static_cast<std::uint16_t>(bits + 1);
    float const middle = 0.5f * (static_cast<float>(low) + static_cast<float>(high));
    auto const place = std::bit_cast<std::uint32_t>(middle);
    for (std::uint32_t at : {place - 1, place, place + 1})
      for (std::uint32_t sign : {0u, 0x80000000u}) {
        auto const value = std::bit_cast<float>(at | sign);
        wrong += narrow_bits(value) != ts::half(value).bits;
      }
  }
  CHECK(wrong == 0);
}

TEST_CASE("a reduction gives the same bits every time") {
  std::vector<float> first;
  for (int round = 0; round < 5; ++round) {
    std::vector<float> result;
    ts::run(7, [&](Comm& comm) {
      auto buffer = values_of<float>(comm.rank(), 5000);
      comm.transport().all_reduce(ts::DType::f32, buffer.data(), 5000);
      if (comm.rank() == 3) result = buffer;
    });
    if (round == 0) first = result;
    CHECK(same_bits(result.data(), first.data(), 5000));
  }
}

TEST_CASE("many collectives in a row keep their data apart") {
  check_ranks(4, [](Transport& transport) {
    int wrong = 0;
    std::vector<std::uint8_t> send(24), recv(24);
    for (std::int64_t round = 0; round < 400; ++round) {
      for (std::size_t i = 0; i < 24; ++i)
        send[i] = byte_of(transport.rank(), static_cast<std::int64_t>(i), round);
      transport.all_to_all(send.data(), recv.data(), 6, {"reduce", "wte", round});
      for (int peer = 0; peer < 4; ++peer)
        for (std::int64_t i = 0; i < 6; ++i)
          wrong +=
              recv[static_cast<std::size_t>(peer * 6 + i)] != byte_of(peer, transport.rank() * 6 + i, round);
    }
    return wrong;
  });
}

TEST_CASE("bytes sent follow the documented formulas") {
  for (int world : worlds)
    check_ranks(world, [](Transport& transport) {
      std::int64_t const w = transport.world();
      bool const root = transport.rank() == (w > 1 ? 1 : 0);
      int wrong = 0;
      auto const sent = [&](std::int64_t expected) {
        wrong += transport.bytes_sent() != expected || transport.traffic().collectives != 1;
        wrong += transport.traffic().waiting > transport.traffic().seconds;
        transport.reset_traffic();
        wrong += transport.bytes_sent() != 0;
      };
      std::vector<float> send(static_cast<std::size_t>(10 * w)), recv(send.size());
      transport.all_to_all(send.data(), recv.data(), 40);
      sent((w - 1) * 40);
      transport.all_gather(send.data(), recv.data(), 40);
      sent((w - 1) * 40);
      transport.reduce_scatter(ts::DType::f32, send.data(), recv.data(), 10);
      sent((w - 1) * 40);
      transport.gather(w > 1 ? 1 : 0, send.data(), recv.data(), 40);
      sent(root ? 0 : 40);
      transport.broadcast(w > 1 ? 1 : 0, send.data(), 40);
      sent(root ? (w - 1) * 40 : 0);
      transport.all_reduce(ts::DType::f32, send.data(), 10);
      sent(2 * (w - 1) * ((10 + w - 1) / w) * 4);
      transport.barrier();
      sent(0);
      return wrong;
    });
}

TEST_CASE("the allocation counter counts each form of new") {
  std::int64_t const before = allocation_support::count();
  void* const plain = ::operator new(24);
  CHECK(allocation_support::count() == before + 1);
  void* const aligned = ::operator new (24, std::align_val_t{128});
  CHECK(allocation_support::count() == before + 2);
  CHECK(reinterpret_cast<std::uintptr_t>(aligned) % 128 == 0);
  ::operator delete (aligned, std::align_val_t{128});
  ::operator delete(plain);
}

TEST_CASE("collectives allocate nothing") {
  for (int world : {1, 3}) {
    std::atomic<std::int64_t> grown{-1};
    ts::run(world, [&](Comm& comm) {
      Transport& transport = comm.transport();
      std::vector<float> send(3000), recv(9000);
      transport.barrier();
      std::int64_t const before = allocation_support::count();
      transport.barrier();
      for (int round = 0; round < 3; ++round) {
        transport.all_to_all(send.data(), recv.data(), 4000, {"reduce", "h.0", round});
        transport.all_gather(send.data(), recv.data(), 12000, {"gather", "h.0", round});
        transport.gather(0, send.data(), recv.data(), 12000);
        transport.broadcast(0, send.data(), 12000);
        transport.all_reduce(ts::DType::f32, send.data(), 3000);
        transport.all_reduce(ts::DType::f16, send.data(), 3000);
        transport.reduce_scatter(ts::DType::bf16, recv.data(), send.data(), 1000);
        transport.heartbeat();
      }
      transport.barrier();
      if (comm.is_root()) grown = allocation_support::count() - before;
      transport.barrier();
    });
    CHECK(grown == 0);
  }
}

TEST_CASE("wrong arguments are refused with numbers") {
  std::vector<std::uint8_t> memory(64);
  ts::comm::Single single;
  CHECK_THROWS_WITH_AS(single.all_gather(memory.data(), memory.data(), -1),
                       doctest::Contains("all_gather of -1 bytes: a size must not be negative"), ts::Error);
  CHECK_THROWS_WITH_AS(single.broadcast(1, memory.data(), 4), doctest::Contains("a rank from 0 to 0"),
                       ts::Error);
  CHECK_THROWS_WITH_AS(single.broadcast(0, nullptr, 4, {"write_back", "wte"}),
                       doctest::Contains("(write_back wte): a buffer is null"), ts::Error);
  CHECK_THROWS_WITH_AS(single.all_reduce(ts::DType::u8, memory.data(), 4),
                       doctest::Contains("u8 are codes, which have no sum"), ts::Error);
  auto const overlap = [&](Comm& comm) { comm.transport().all_to_all(memory.data(), memory.data() + 8, 8); };
  CHECK_THROWS_WITH_AS(ts::run(2, overlap), doctest::Contains("send and receive buffers overlap"), ts::Error);
}

TEST_CASE("ranks agree on a value or all throw and name the values") {
  ts::run(5, [](Comm& comm) { ts::comm::agree(comm.transport(), 42, "schedule hash"); });
  Comm alone;
  ts::comm::agree(alone.transport(), 7, "schedule hash");

  std::atomic<int> threw{0};
  std::string text;
  try {
    ts::run(5, [&](Comm& comm) {
      try {
        ts::comm::agree(comm.transport(), comm.rank() == 2 ? 0xbeef : 42, "schedule hash");
      } catch (ts::Error const& error) {
        threw += error.kind() == ts::ErrorKind::config;
        throw;
      }
    });
  } catch (ts::Error const& error) {
    text = error.what();
  }
  CHECK(threw == 5);
  CHECK(text.find("ranks disagree on the schedule hash: ranks 0, 1, 3, 4 have 0x000000000000002a; "
                  "rank 2 has 0x000000000000beef") != text.npos);
}

TEST_CASE("the watchdog word names the collective that a rank reached") {
  ts::run(3, [](Comm& comm) {
    Transport& transport = comm.transport();
    std::uint8_t byte = 0, all[3];
    CHECK(transport.word(comm.rank()) == 0);
    transport.barrier();
    transport.all_gather(&byte, all, 1, {"gather", "h.9", 4});
    auto const word = transport.word(comm.rank());
    CHECK(ts::comm::sequence_of(word) == 2);
    CHECK(ts::comm::move_of(word) == ts::Move::all_gather);
    CHECK(transport.where(comm.rank()) ==
          "after collective 2, all_gather of 1 bytes (gather h.9, micro-batch 4)");
    transport.barrier();
    CHECK(ts::comm::sequence_of(transport.word((comm.rank() + 1) % 3)) >= 3);
  });
  Comm alone;
  alone.transport().barrier();
  CHECK(ts::comm::sequence_of(alone.transport().word(0)) == 1);
}

TEST_CASE("the example of docs communication runs") {
  ts::run(4, [](ts::comm::Comm& comm) {
    float sum = static_cast<float>(comm.rank());
    comm.transport().all_reduce(ts::DType::f32, &sum, 1, {"reduce", "h.3", 0});
    if (comm.is_root() && sum != 6) throw ts::Error(ts::ErrorKind::failed, "0 + 1 + 2 + 3 should be 6");
  });
}

TEST_CASE("runs work at the same time and inside one another") {
  std::atomic<int> good{0};
  auto const inner = [&](int world, int base) {
    ts::run(world, [&](Comm& comm) {
      for (int round = 0; round < 50; ++round) {
        double value = base + comm.rank();
        comm.transport().all_reduce(ts::DType::f64, &value, 1);
        good += value == base * world + world * (world - 1) / 2;
      }
    });
  };
  std::thread concurrent([&] { inner(3, 1000); });
  ts::run(2, [&](Comm& comm) {
    inner(2, 10 * (comm.rank() + 1));
    comm.transport().barrier();
  });
  concurrent.join();
  CHECK(good == 50 * (3 + 2 * 2));
}

TEST_CASE("handles of threads that the caller owns") {
  auto ranks = ts::comm::threads(2);
  std::atomic<int> sum{0};
  auto const body = [&](Comm comm) {
    float value = static_cast<float>(comm.rank() + 1);
    comm.transport().all_reduce(ts::DType::f32, &value, 1);
    sum += static_cast<int>(value);
  };
  std::thread other(body, ranks[1]);
  body(ranks[0]);
  other.join();
  CHECK(sum == 6);
  CHECK(ranks[0].transport().name() == "threads");
  CHECK(ts::comm::threads(1)[0].transport().name() == "single");
  static_assert(ts::comm::Communicator<Comm>);
}

TEST_CASE("the number of ranks is checked") {
  auto const nothing = [](Comm&) {};
  CHECK_THROWS_WITH_AS(ts::run(0, nothing), doctest::Contains("1 to 64 ranks, but the requested number is 0"),
                       ts::Error);
  CHECK_THROWS_WITH_AS(ts::run(-3, nothing), doctest::Contains("requested number is -3"), ts::Error);
  CHECK_THROWS_WITH_AS(ts::run(65, nothing), doctest::Contains("requested number is 65"), ts::Error);
  CHECK_THROWS_WITH_AS(ts::run(2, nothing, {.timeout = std::chrono::seconds(0)}),
                       doctest::Contains("above 0 s"), ts::Error);
  std::atomic<int> ran{0};
  ts::run(64, [&](Comm& comm) {
    std::int32_t send = comm.rank(), all[64];
    comm.transport().all_gather(&send, all, 4);
    for (int rank = 0; rank < 64; ++rank) ran += all[rank] == rank;
  });
  CHECK(ran == 64 * 64);
}

TEST_CASE("collectives go among the rows and columns of a mesh") {
  ts::run(6, [](ts::comm::Comm handle) {  // 3 rows of 2 ranks: 0 1, 2 3, 4 5
    ts::comm::Transport& transport = handle.transport();
    int const rank = transport.rank(), row = rank / 2, column = rank % 2;
    ts::comm::ProcessGroup const in_row{2 * row, 1, 2}, in_column{column, 2, 3};
    double const own = 10.0 + rank;
    double gathered[3] = {};
    transport.all_gather(&own, gathered, sizeof own, {}, in_column);
    CHECK((gathered[0] == 10.0 + column && gathered[1] == 12.0 + column && gathered[2] == 14.0 + column));
    CHECK(transport.bytes_sent() == 2 * 8);

    double sums[2] = {own, -own};
    transport.reduce_scatter(ts::DType::f64, sums, sums + column, 1, {}, in_row);
    double const of_row = 20.0 + 4 * row + 1;
    CHECK(sums[column] == (column == 0 ? of_row : -of_row));

    double values[3] = {own, 1.0, 2.0 * own};
    transport.all_reduce(ts::DType::f64, values, 3, {}, in_column);
    CHECK((values[0] == 36.0 + 3 * column && values[1] == 3.0 && values[2] == 72.0 + 6 * column));

    double const pieces[2] = {own, own + 0.5};
    double received[6] = {};
    transport.all_to_all(pieces, received, sizeof(double), {}, 2);
    for (int peer = 0; peer < 6; ++peer) CHECK(received[peer] == 10.0 + peer + 0.5 * column);
  });
}

TEST_CASE("one rank sends to another while the others do something else") {
  for (int const world : {2, 3, 5})
    for (std::int64_t const size : sizes)
      check_ranks(world, [size](Transport& transport) {
        int const rank = transport.rank(), last = transport.world() - 1;
        auto bytes = bytes_of(rank, size);
        int wrong = 0;
        // All ranks form a chain. Each rank except the first receives from the rank before it. Then each rank
        // except the last sends to the next rank. The bytes of the two rounds differ, so a wrong order is
        // detected.
        for (int round : {0, 1}) {
          std::vector<std::uint8_t> from_before(static_cast<std::size_t>(size));
          if (rank > 0) transport.receive(rank - 1, from_before.data(), size, {"test", "h.0", round});
          if (rank > 0) wrong += from_before != bytes_of(rank - 1, size, round);
          auto const mine = bytes_of(rank, size, round);
          if (rank < last) transport.send(rank + 1, mine.data(), size, {"test", "h.0", round});
        }
        wrong += transport.bytes_sent() != (rank < last ? 2 * size : 0);
        // A send must not change the watch word (the progress that other ranks see).
        wrong += rank == 0 && transport.word(0) != 0;
        // The ranks form a ring, and each rank sends to the next one. Every send and receive is between
        // begin_group and end_group.
        std::vector<std::uint8_t> before(static_cast<std::size_t>(size)), again(before);
        int const next = (rank + 1) % transport.world(), other = (rank + last) % transport.world();
        transport.begin_group();
        transport.receive(other, before.data(), size);
        transport.send(next, bytes.data(), size);
        transport.receive(other, again.data(), size);
        transport.send(next, bytes.data(), size);
        transport.end_group();
        wrong += before != bytes_of(other, size) || again != before;
        transport.barrier();
        return wrong;
      });
}

TEST_CASE("what is sent and received must agree, and a rank that is missing is named") {
  auto const text_of = [](auto const& body, double timeout = 300.0) {
    ts::RunOptions options;
    options.timeout = std::chrono::duration<double>(timeout);
    try {
      ts::run(
          2, [&](Comm& comm) { body(comm.transport(), comm.rank()); }, options);
    } catch (ts::Error const& error) {
      return std::string(error.what());
    }
    return std::string("nothing was thrown");
  };
  double value[2] = {};
  auto const has = [](std::string const& text, char const* part) {
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
  };
  has(text_of([&](Transport& transport, int rank) {
        if (rank == 0) transport.send(1, value, 8);
        if (rank == 1) transport.receive(0, value, 16);
      }),
      "rank 0 sends 8 bytes, and rank 1 receives 16");
  has(text_of([&](Transport& transport, int rank) {
        if (rank == 1) transport.receive(0, value, 8, {"pass", "h.1", 2});
      }),
      "it left");
  has(text_of(
          [&](Transport& transport, int rank) {
            if (rank == 0) transport.send(1, value, 8, {"pass", "h.1", 2});
            if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(400));
          },
          0.1),
      "it gave no sign of life for 0.1 s while rank 0 waited");
  has(text_of([&](Transport& transport, int rank) { transport.send(rank, value, 8); }),
      "the other rank must be another of the 2 ranks of its group");
}

TEST_CASE("a communicator is opened once for its group") {
  ts::run(4, [](Comm handle) {
    Transport& transport = handle.transport();
    int const rank = transport.rank();
    ts::comm::ProcessGroup const row = transport.over({rank - rank % 2, 1, 2}), again = transport.over(row);
    CHECK((again.communicator == row.communicator && again.first == row.first && again.count == 2));
    CHECK(transport.over({.channel = 1}).count == 4);
    CHECK(transport.over({.channel = 1}).channel == 1);
    CHECK(transport.over({}).communicator == 0);
    double const own = 10.0 + rank;
    double gathered[2] = {}, value = own;
    transport.gather(1, &own, gathered, sizeof own, {}, row);  // to the rank with index 1 of each row
    if (rank % 2 == 1) CHECK((gathered[0] == 9.0 + rank && gathered[1] == own));
    CHECK(transport.bytes_sent() == (rank % 2 == 1 ? 0 : 8));
    transport.broadcast(1, &value, sizeof value, {}, row);
    CHECK(value == 11.0 + rank - rank % 2);
    double const pieces[2] = {own, -own};
    transport.all_to_all(pieces, gathered, sizeof own, {}, 0, row);
    double const sign = rank % 2 == 0 ? 1.0 : -1.0;
    CHECK((gathered[0] == sign * (10.0 + rank - rank % 2) && gathered[1] == sign * (11.0 + rank - rank % 2)));
  });
}

TEST_CASE("ranks that vote stop before the same step, whenever each of them hears of the stop") {
  for (int run = 0; run < 60; ++run) {
    int const world = 2 + run % 4;
    std::atomic<bool> stop{false};
    std::jthread const elsewhere([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(100 + 37 * run));
      stop = true;
    });
    std::vector<int> steps(static_cast<std::size_t>(world), 0);
    ts::run(world, [&](Comm& comm) {
      int& done = steps[static_cast<std::size_t>(comm.rank())];
      for (; ts::comm::unanimous(comm, !stop); ++done) {
        float value = 1.f;
        comm.transport().all_reduce(ts::DType::f32, &value, 1, {"step"});
      }
      comm.transport().barrier({"after"});
    });
    for (int const done : steps) CHECK(done == steps.front());
  }
}

TEST_CASE("one rank's no is the answer of all") {
  for (int const world : {1, 3})
    ts::run(world, [&](Comm& comm) {
      for (int no = -1; no < world; ++no) CHECK(ts::comm::unanimous(comm, comm.rank() != no) == (no < 0));
    });
}
