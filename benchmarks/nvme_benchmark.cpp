// SPDX-License-Identifier: Apache-2.0
// Compares the library's NvmeFile with a plain loop of pread and pwrite with O_DIRECT on a second file. The
// two measurements alternate, so that both see the same disk. The reported time is NvmeFile's.
// bytes_per_second is the rate of NvmeFile, raw_bytes_per_second the rate of the plain loop, and of_raw is
// the first divided by the second. The rates use the median time, because disks of virtual machines pause for
// a second when their I/O credit is spent. The files are in TMPDIR, or in /tmp if TMPDIR is not set.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fcntl.h>
#include <memory>
#include <new>
#include <string>
#include <unistd.h>
#include <vector>

#include <benchmark/benchmark.h>

#include "tessera/io/nvme_file.hpp"

#include "context.hpp"

namespace {

namespace ts = tessera;

constexpr std::int64_t file_bytes = std::int64_t{128} << 20;

std::string folder() {
  char const* const given = std::getenv("TMPDIR");
  return given != nullptr && *given != '\0' ? given : "/tmp";
}

struct Free {
  void operator()(std::byte* bytes) const noexcept { ::operator delete (bytes, std::align_val_t{4096}); }
};

double seconds_of(auto&& work) {
  auto const start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double>& values) {
  auto const middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void piece(benchmark::State& state, bool write, ts::OpenIoEngine open) {
  std::int64_t const bytes = state.range(0);
  std::unique_ptr<std::byte, Free> const buffer(
      new (::operator new (static_cast<std::size_t>(bytes), std::align_val_t{4096})) std::byte[bytes]());
  ts::NvmeFile file({folder(), 0, 0, open}, 0, file_bytes), other({folder(), 1 << 20, 1}, 1, file_bytes);
  int const raw = ::open(other.path().c_str(), O_RDWR | (other.direct() ? O_DIRECT : 0));
  auto const plain = [&](bool writing, std::int64_t at) {
    for (std::int64_t done = 0; done < bytes;) {
      ssize_t const moved =
          writing ? ::pwrite(raw, buffer.get() + done, static_cast<std::size_t>(bytes - done), at + done)
                  : ::pread(raw, buffer.get() + done, static_cast<std::size_t>(bytes - done), at + done);
      if (moved <= 0) return state.SkipWithError("the plain loop failed");
      done += moved;
    }
  };
  // Writes both files once, because blocks that were never written have other speeds.
  for (std::int64_t at = 0; at < file_bytes; at += bytes) {
    file.write(at, buffer.get(), bytes);
    plain(true, at);
  }
  std::vector<double> ours, theirs;
  std::int64_t at = 0;
  for (auto _ : state) {
    auto const ours_now = [&] {
      ours.push_back(seconds_of([&] {
        if (write)
          file.write(at, buffer.get(), bytes);
        else
          file.read(at, buffer.get(), bytes);
      }));
    };
    bool const first = ours.size() % 2 == 0;
    if (first) ours_now();
    theirs.push_back(seconds_of([&] { plain(write, at); }));
    if (!first) ours_now();
    state.SetIterationTime(ours.back());
    at = (at + bytes) % file_bytes;
  }
  ::close(raw);
  double const rate = static_cast<double>(bytes) / median(ours),
               raw_rate = static_cast<double>(bytes) / median(theirs);
  state.counters["bytes_per_second"] = rate;
  state.counters["raw_bytes_per_second"] = raw_rate;
  state.counters["of_raw"] = rate / raw_rate;
  state.SetLabel(file.description());
}

[[maybe_unused]] bool const registered = [] {
  for (bool const write : {false, true}) {
    std::string const name = write ? "write/" : "read/";
    auto const add = [&](char const* engine, ts::OpenIoEngine open) {
      benchmark::RegisterBenchmark((name + engine).c_str(), piece, write, open)
          ->RangeMultiplier(32)
          ->Range(1 << 20, 32 << 20)
          ->ArgName("bytes")
          ->UseManualTime();
    };
    add("threads", ts::IoThreads::open);
    add("preferred", nullptr);
  }
  return true;
}();

}  // namespace
