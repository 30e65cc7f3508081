// SPDX-License-Identifier: Apache-2.0
// Provides PlanFile, a file that stores for each matrix product the algorithm of cuBLASLt that was measured
// to be the fastest. A product with its algorithm is called a plan. Each line of the file has one plan. This
// code needs no CUDA.
//
// Several processes may append lines at once. Each appends a line with one write to the end of the file,
// while it holds the file's lock. A line ends in a checksum of its text, so an incomplete or damaged line is
// detected. Such a line is skipped, and its product is measured again.
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <fcntl.h>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <sys/file.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "tessera/core/error.hpp"

namespace tessera {
inline namespace v0 {
namespace cuda {

/// ProductNumbers are the integers that describe a matrix product: everything on which the choice of an
/// algorithm depends. AlgorithmNumbers are the integers of a cuBLASLt algorithm. PlanNumbers are a plan: a
/// product with its algorithm.
using ProductNumbers = std::array<std::uint64_t, 19>;
using AlgorithmNumbers = std::array<std::uint64_t, 8>;
using PlanNumbers = std::pair<ProductNumbers, AlgorithmNumbers>;

/// Returns the FNV-1a hash of `text`, the checksum of a line.
inline std::uint64_t sum_of_text(std::string_view text) {
  std::uint64_t sum = 14695981039346656037u;
  for (char const c : text) sum = (sum ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return sum;
}

/// Returns `plan` as a line of the file: the numbers of the plan, then the checksum of their text, separated
/// by single spaces.
inline std::string plan_line(PlanNumbers const& plan) {
  std::string line;
  for (std::uint64_t const number : plan.first) line += std::to_string(number) + ' ';
  for (std::uint64_t const number : plan.second) line += std::to_string(number) + ' ';
  return line + std::to_string(sum_of_text(line)) + '\n';
}

/// Returns the plan in `line`, which is a line of the file without the newline. Returns nothing if `line` is
/// incomplete or damaged.
inline std::optional<PlanNumbers> read_plan(std::string_view line) {
  PlanNumbers plan{};
  char const* at = line.data();
  char const* const end = at + line.size();
  auto const read = [&](std::uint64_t& number) {
    auto const [stop, code] = std::from_chars(at, end, number);
    at = stop == end ? stop : stop + 1;  // past the space
    return code == std::errc();
  };
  bool const complete = std::all_of(plan.first.begin(), plan.first.end(), read) &&
                        std::all_of(plan.second.begin(), plan.second.end(), read);
  std::string const written = complete ? plan_line(plan) : std::string();
  return complete && written.starts_with(line) && written.size() == line.size() + 1 ? std::optional(plan)
                                                                                    : std::nullopt;
}

/// A map from matrix products to algorithms, in memory and in a file. Several threads may use it.
class PlanFile {
 public:
  /// Reads the file at `path`. If `writes` is true, creates the file if it is missing (its folder must
  /// exist), and `add` appends to the file. If `writes` is false, a missing file counts as empty. Throws
  /// Error(data) if the file at `path` is not a file of plans, and Error(failed) for other failures.
  PlanFile(std::string path, bool writes) : path_(std::move(path)), writes_(writes) {
    Opened const file(path_, writes_ ? O_RDWR | O_CREAT : O_RDONLY);
    if (!file && errno == ENOENT && !writes_) return;
    if (!file) throw Error(ErrorKind::failed, cannot("open", errno));
    struct stat status {};
    if (::fstat(file.number, &status) != 0)
      throw Error(ErrorKind::failed, cannot("get the status of the file", errno));
    if (!S_ISREG(status.st_mode) || status.st_size > max_bytes)
      throw Error(ErrorKind::data, path_ + ": is not a product-plan file; delete it, or give another folder");
    std::string text(static_cast<std::size_t>(status.st_size), '\0');
    for (std::size_t done = 0; done < text.size();) {
      ssize_t const got =
          ::pread(file.number, text.data() + done, text.size() - done, static_cast<::off_t>(done));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) throw Error(ErrorKind::failed, cannot("read", errno));
      if (got == 0) text.resize(done);
      done += static_cast<std::size_t>(got);
    }
    std::string_view rest = text;
    for (std::size_t end; (end = rest.find('\n')) != rest.npos; rest.remove_prefix(end + 1))
      if (auto const plan = read_plan(rest.substr(0, end))) known_.try_emplace(plan->first, plan->second);
  }

  std::string const& path() const noexcept { return path_; }
  std::size_t size() const {
    std::lock_guard const lock(mutex_);
    return known_.size();
  }
  std::optional<AlgorithmNumbers> find(ProductNumbers const& product) const {
    std::lock_guard const lock(mutex_);
    auto const found = known_.find(product);
    return found == known_.end() ? std::nullopt : std::optional(found->second);
  }
  /// Stores `algorithm` for the matrix product `product`, unless an algorithm is already stored for it.
  /// Returns the stored algorithm. All later calls for this product use it.
  AlgorithmNumbers add(ProductNumbers const& product, AlgorithmNumbers const& algorithm) {
    std::unique_lock lock(mutex_);
    auto const [entry, made] = known_.try_emplace(product, algorithm);
    AlgorithmNumbers const stored = entry->second;
    if (!made || !writes_ || !failure_.empty()) return stored;
    lock.unlock();  // another rank must not wait for this rank's write
    std::string const problem = append(plan_line({product, algorithm}));
    lock.lock();
    if (failure_.empty()) failure_ = problem;
    return stored;
  }
  /// Returns the reason if `add` failed to write a plan to the file, or an empty string. After the first
  /// failure `add` writes nothing more to the file.
  std::string failure() const {
    std::lock_guard const lock(mutex_);
    return failure_;
  }

 private:
  static constexpr std::int64_t max_bytes = std::int64_t{64} << 20;

  struct Opened {
    Opened(std::string const& path, int flags)
        : number(::open(path.c_str(), flags | O_APPEND | O_NONBLOCK | O_CLOEXEC, 0666)) {}
    Opened(Opened const&) = delete;
    Opened& operator=(Opened const&) = delete;
    ~Opened() {
      if (number >= 0) ::close(number);
    }
    explicit operator bool() const noexcept { return number >= 0; }
    int number;
  };

  std::string cannot(char const* what, int code) const {
    return path_ + ": cannot " + what + " (" + std::generic_category().message(code) +
           "); give a folder that may be written";
  }

  /// Appends `line` to the file. Returns an empty string, or the reason if this failed.
  std::string append(std::string line) const {
    Opened const file(path_, O_RDWR | O_CREAT);
    if (!file) return cannot("open", errno);
    // Another process possibly still writes a line. Without the lock, this function would see that line as
    // the incomplete line of a killed process. If another process keeps the lock for about 2 s, the append
    // fails. If the file system has no locks, the line is written without a lock. Closing the file releases
    // the lock.
    for (int tries = 0;
         ::flock(file.number, LOCK_EX | LOCK_NB) < 0 && (errno == EINTR || errno == EWOULDBLOCK); ++tries) {
      if (tries == 2000) return cannot("lock", EWOULDBLOCK);
      ::usleep(1000);
    }
    struct stat status {};
    char last = '\n';
    if (::fstat(file.number, &status) == 0 && status.st_size > 0)
      (void)!::pread(file.number, &last, 1, status.st_size - 1);
    if (last != '\n') line.insert(line.begin(), '\n');  // ends the incomplete line of a killed process
    ssize_t written = 0;
    while ((written = ::write(file.number, line.data(), line.size())) < 0 && errno == EINTR) {
    }
    if (written == static_cast<ssize_t>(line.size())) return {};
    return cannot("write", written < 0 ? errno : ENOSPC);
  }

  std::string path_;
  bool writes_;
  mutable std::mutex mutex_;
  std::map<ProductNumbers, AlgorithmNumbers> known_;
  std::string failure_;
};

}  // namespace cuda
}  // namespace v0
}  // namespace tessera
