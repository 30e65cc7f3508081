// SPDX-License-Identifier: Apache-2.0
// Connects processes on several hosts through MPI. In a program that links the CMake target tessera::mpi,
// comm::from_environment uses MPI if the ranks share no memory; the program needs no further call. A program
// whose build does not use this target includes this header instead.
#pragma once

// Leaves out the C++ bindings of old MPI libraries, because they must be linked with one more library.
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <mpi.h>
#include <mutex>
#include <netinet/in.h>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "tessera/comm/communicator.hpp"
#include "tessera/comm/environment.hpp"
#include "tessera/comm/launch.hpp"
#include "tessera/comm/messages.hpp"
#include "tessera/comm/processes.hpp"
#include "tessera/comm/rendezvous.hpp"
#include "tessera/comm/socket.hpp"
#include "tessera/config.hpp"
#include "tessera/core/error.hpp"
#include "tessera/detail/clock.hpp"

namespace tessera {
inline namespace v0 {
namespace comm {
namespace detail {

/// Returns the message of MPI for an error code.
inline std::string mpi_text(int code) {
  char text[MPI_MAX_ERROR_STRING + 1] = {};
  int size = 0;
  if (MPI_Error_string(code, text, &size) != MPI_SUCCESS) return sentence({"error ", code});
  return text;
}

/// Throws Error(failed) if `code` is an error. `what` follows "MPI could not" in the message.
inline void need_mpi(int code, char const* what) {
  if (code != MPI_SUCCESS) throw_error(ErrorKind::failed, {"MPI could not ", what, ": ", mpi_text(code)});
}

/// Initializes and finalizes MPI. A process has one object of this class.
class MpiLibrary {
 public:
  /// Returns the object of this process. The first call initializes MPI, unless the program has already done
  /// so; all ranks must make the first call together. Throws Error(config) if MPI and the launcher do not
  /// give this process the same rank and the same number of ranks.
  static MpiLibrary& of(LaunchEnvironment const& launch) {
    int begun = 0;
    MPI_Initialized(&begun);
    if (!begun) need_manager(launch);
    static MpiLibrary library;
    library.compare(launch);
    return library;
  }
  MpiLibrary(MpiLibrary const&) = delete;
  MpiLibrary& operator=(MpiLibrary const&) = delete;
  /// Finalizes MPI if this class has initialized it. Before that, waits until all ranks have reached this
  /// point, up to 10 s. If a rank is lost, had a failure or does not come, does not call MPI_Finalize, which
  /// would wait for ever.
  ~MpiLibrary() {
    int ended = 0;
    MPI_Finalized(&ended);
    if (!initialized_here_ || ended) return;
    if (launch_) {
      // A failure may concern only some ranks, so all of them agree first.
      try {
        for (std::string const& answer :
             launch_->all_gather(failed_ ? "failed" : "", "end MPI", std::chrono::seconds(10)))
          if (!answer.empty()) return;
      } catch (...) {  // a rank is lost or does not come
        return;
      }
      MPI_Finalize();
      return;
    }
    if (failed_) return;
    MPI_Request request = MPI_REQUEST_NULL;
    if (MPI_Ibarrier(MPI_COMM_WORLD, &request) != MPI_SUCCESS) return;
    auto const deadline = SteadyClock::now() + std::chrono::seconds(10);
    for (int done = 0; !done; std::this_thread::sleep_for(std::chrono::milliseconds(1)))
      if (SteadyClock::now() > deadline || MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS)
        return;
    MPI_Finalize();
  }

  /// Returns whether this process may still call MPI to free communicators and to finalize. Returns false
  /// after a failure and after MPI_Finalize.
  bool usable() const {
    int ended = 0;
    MPI_Finalized(&ended);
    return !ended && !failed_;
  }
  /// Records a failure. Afterwards `usable` returns false.
  void fail() noexcept { failed_ = true; }
  /// Stores `launch`, from which the destructor learns whether a rank is lost.
  void keep(std::shared_ptr<Launch> launch) { launch_ = std::move(launch); }

 private:
  MpiLibrary() {
    int begun = 0, ended = 0, level = MPI_THREAD_SINGLE;
    MPI_Initialized(&begun);
    MPI_Finalized(&ended);
    if (ended)
      throw Error(ErrorKind::usage,
                  "this program has called MPI_Finalize; create the communicator before, and destroy it too");
    if (begun) {
      need_mpi(MPI_Query_thread(&level), "tell its thread level");
    } else {
      need_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level), "start");
      initialized_here_ = true;
      MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
      MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    }
    if (level < MPI_THREAD_SERIALIZED)
      throw Error(ErrorKind::config,
                  begun
                      ? "this program has initialized MPI for one thread; call MPI_Init_thread with "
                        "MPI_THREAD_SERIALIZED or MPI_THREAD_MULTIPLE"
                      : "this MPI library serves one thread only; tessera::mpi needs MPI_THREAD_SERIALIZED");
  }

  /// Throws Error(config) if the launcher has not set up MPI for its processes. Without this check, MPI_Init
  /// would end the process with a page of text, or make each process a world of one rank.
  static void need_manager(LaunchEnvironment const& launch) {
    if (launch.source != "SLURM" && launch.source != "torchrun" && launch.source != "deepspeed") return;
    for (char const* set : {"PMIX_RANK", "PMIX_NAMESPACE", "PMI_RANK", "PMI_SIZE", "PMI_FD", "PMI_PORT",
                            "PMI_CONTROL_PORT", "PALS_RANKID", "I_MPI_PMI_LIBRARY", "OMPI_COMM_WORLD_RANK",
                            "MPI_LOCALRANKID", "MV2_COMM_WORLD_RANK"})
      if (std::getenv(set)) return;
    throw_error(
        ErrorKind::config,
        {"rank ", launch.rank, " of ", launch.world, " was started by ",
         started_by_script(launch) ? "a script" : launch.source,
         ", which has not set up MPI, and ranks on several hosts communicate through MPI; start them with ",
         launch.source == "SLURM" ? "srun --mpi=pmix (srun --mpi=list shows the choices)" : "mpirun"},
        launch.rank);
  }

  static void compare(LaunchEnvironment const& launch) {
    int rank = 0, world = 0;
    need_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "tell the rank");
    need_mpi(MPI_Comm_size(MPI_COMM_WORLD, &world), "tell the number of ranks");
    if (rank == launch.rank && world == launch.world) return;
    char text[MPI_MAX_LIBRARY_VERSION_STRING + 1] = {};
    int size = 0;
    MPI_Get_library_version(text, &size);
    std::string_view const version(text);
    throw_error(ErrorKind::config,
                {launch.source, " started this process on ", host_name(), " as rank ", launch.rank, " of ",
                 launch.world, ", but for MPI it is rank ", rank, " of ", world,
                 "; start the ranks with the mpirun of the MPI library that this program is linked with: ",
                 version.substr(0, version.find_first_of(",\n"))},
                launch.rank);
  }

  bool initialized_here_ = false;
  bool failed_ = false;
  std::shared_ptr<Launch> launch_;
};

/// A duplicate of MPI_COMM_WORLD. Messages of the program's own MPI calls cannot arrive in this communicator.
/// MPI returns the errors of this communicator as codes instead of ending the process.
class MpiWorld {
 public:
  /// Duplicates the communicator. All ranks must call it together. While this rank waits for the other ranks,
  /// it calls check() again and again. `check` may throw, to end the wait.
  template <class Check>
  MpiWorld(MpiLibrary& library, Check const& check) : library_(library) {
    MPI_Request request = MPI_REQUEST_NULL;
    need_mpi(MPI_Comm_idup(MPI_COMM_WORLD, &world_, &request), "duplicate its communicator");
    wait(request, "duplicate its communicator", check);
    MPI_Comm_set_errhandler(world_, MPI_ERRORS_RETURN);
  }
  MpiWorld(MpiWorld const&) = delete;
  MpiWorld& operator=(MpiWorld const&) = delete;
  ~MpiWorld() {
    if (world_ != MPI_COMM_NULL && library_.usable()) MPI_Comm_free(&world_);
  }

  MPI_Comm get() const noexcept { return world_; }
  MpiLibrary& library() const noexcept { return library_; }

  /// Waits until `request` is complete. Calls check() again and again; `check` may throw. `what` follows "MPI
  /// could not" in error messages.
  template <class Check>
  void wait(MPI_Request request, char const* what, Check const& check) const {
    try {
      for (int turn = 0;; ++turn) {
        int done = 0;
        need_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), what);
        if (done) return;
        check();
        if (turn < 100)
          std::this_thread::yield();
        else
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    } catch (...) {
      library_.fail();
      throw;
    }
  }

 private:
  MpiLibrary& library_;
  MPI_Comm world_ = MPI_COMM_NULL;
};

/// Returns the addresses of this host's network interfaces, IPv4 first, except the loopback interface.
inline std::vector<std::string> network_addresses() {
  std::vector<std::string> addresses;
  each_interface([&](ifaddrs const& interface, std::string const& address) {
    if (!(interface.ifa_flags & IFF_LOOPBACK)) addresses.push_back(address);
  });
  return addresses;
}

/// Returns the local port of a socket, or 0 if the socket has none.
inline int port_of(int socket) {
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &size) != 0) return 0;
  return ntohs(own.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6 const&>(own).sin6_port
                                         : reinterpret_cast<sockaddr_in const&>(own).sin_port);
}

/// Limits the time of MPI_Init, which waits for all ranks without a limit of its own. If an object of this
/// class still exists at the time `end`, its thread ends the process. A rank that prints shared errors first
/// prints the error message `text`.
class InitLimit {
 public:
  InitLimit(LaunchEnvironment const& launch, SteadyClock::time_point end, std::string text)
      : prints_(launch.prints_shared_errors()),
        end_(end),
        text_(std::move(text)),
        thread_([this] { watch(); }) {}
  InitLimit(InitLimit const&) = delete;
  InitLimit& operator=(InitLimit const&) = delete;
  ~InitLimit() {
    {
      std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

 private:
  void watch() {
    std::unique_lock lock(mutex_);
    if (changed_.wait_until(lock, end_, [this] { return over_; })) return;
    if (prints_)
      std::fprintf(stderr, "error: %s\n", text_.c_str());
    else  // when this process ends, mpirun kills the other ranks; they must print first
      std::this_thread::sleep_for(std::chrono::seconds(1));
    ::_exit(exit_code(ErrorKind::config));
  }

  bool const prints_;
  SteadyClock::time_point const end_;
  std::string const text_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread thread_;
};

/// Fills in the address and the port of rank 0 in `launch`, unless the launcher gives the address. Rank 0
/// sends its port and the addresses of its network interfaces to all ranks through MPI. All ranks then choose
/// the first address to which every rank can connect. Throws Error(config) if there is no such address, or if
/// a rank does not take part within the join timeout. If MPI_Init does not return within this time, ends the
/// process.
inline void meet_through_mpi(LaunchEnvironment& launch, LaunchOptions const& options) {
  if (!launch.master_address.empty()) return;
  auto const deadline =
      SteadyClock::now() + std::chrono::duration_cast<SteadyClock::duration>(options.join_timeout);
  std::string const late = sentence({"rank ", launch.rank, " of ", launch.world, " on ", host_name(),
                                     " waited for ", seconds_text(options.join_timeout.count()),
                                     " to learn the address of rank 0 through MPI, but not all ranks came; ",
                                     launch_advice(launch), or_wait_longer});
  Descriptor listener;
  auto const check = [&] {
    while (listener && Descriptor(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC))) continue;
    if (SteadyClock::now() > deadline) throw Error(ErrorKind::config, late, launch.rank);
  };
  {
    InitLimit const limit(launch, deadline, late);
    MpiLibrary::of(launch);
  }
  MpiWorld const world(MpiLibrary::of(launch), check);

  std::array<char, 4096> told{};  // the port and the addresses, separated by spaces
  if (launch.rank == 0) {
    for (int port = launch.master_port; !listener && port <= 65535; ++port) {
      listener = listen_on(port);
      if (port == 0) break;
    }
    std::string text = std::to_string(listener ? port_of(listener.get()) : 0);
    int count = 0;
    for (std::string const& address : network_addresses())
      if (++count <= 64 && text.size() + address.size() < told.size() - 1) text += " " + address;
    text.copy(told.data(), told.size() - 1);
  }
  MPI_Request request = MPI_REQUEST_NULL;
  need_mpi(MPI_Ibcast(told.data(), static_cast<int>(told.size()), MPI_BYTE, 0, world.get(), &request),
           "tell the address of rank 0");
  world.wait(request, "tell the address of rank 0", check);
  std::string_view rest = told.data();
  auto const next = [&] {
    std::string_view const word = rest.substr(0, rest.find(' '));
    rest.remove_prefix(std::min(rest.size(), word.size() + 1));
    return std::string(word);
  };
  int const port = std::atoi(next().c_str());
  std::string const all(rest);
  std::vector<std::string> addresses;
  while (!rest.empty()) addresses.push_back(next());
  if (port == 0 || addresses.empty())
    throw Error(
        ErrorKind::config,
        "rank 0 has no network interface other than the loopback one, or no free port; set MASTER_ADDR "
        "and MASTER_PORT on every rank",
        launch.rank);

  std::uint64_t reached = 0, by_all = 0;  // bit i belongs to addresses[i]
  int error = 0;
  for (std::size_t i = 0; i < addresses.size(); ++i)
    if (launch.rank == 0 ||
        Addresses(addresses[i], host_name()).connect(port, std::chrono::seconds(2), error))
      reached |= std::uint64_t{1} << i;
  need_mpi(MPI_Iallreduce(&reached, &by_all, 1, MPI_UINT64_T, MPI_BAND, world.get(), &request),
           "agree on an address of rank 0");
  world.wait(request, "agree on an address of rank 0", check);
  if (reached == 0)
    throw_error(ErrorKind::config,
                {"rank ", launch.rank, " on ", host_name(), " cannot reach rank 0 at port ", port, " of ",
                 all, ": ", std::strerror(error),
                 "; open this port, or set MASTER_ADDR and MASTER_PORT on every rank to a place that can be "
                 "reached"},
                launch.rank);
  if (by_all == 0)
    throw_error(ErrorKind::config,
                {"not all ranks reach rank 0 at port ", port, " of one of its addresses ", all,
                 "; set MASTER_ADDR and MASTER_PORT on every rank to a place that can be reached"},
                launch.rank);
  std::size_t first = 0;
  while (!(by_all >> first & 1)) ++first;
  launch.master_address = addresses[first];
  launch.master_port = port;
}

}  // namespace detail

/// Moves bytes between processes through MPI. The processes can be on several hosts and need not share
/// memory.
class Mpi final : public Messages {
 public:
  /// All ranks of the launch must call it together. Throws Error(config) if MPI and the launcher do not give
  /// this process the same rank and the same number of ranks, and PeerLost if a rank is lost meanwhile.
  explicit Mpi(std::shared_ptr<Launch> launch)
      : launch_(std::move(launch)), world_(detail::MpiLibrary::of(launch_->environment()), [&] {
          if (auto const fault = launch_->fault()) launch_->raise(*fault, "waited for MPI");
        }) {
    world_.library().keep(launch_);
  }
  ~Mpi() override {
    if (!requests_.empty() || launch_->fault() || std::uncaught_exceptions() > exceptions_)
      world_.library().fail();
  }

  std::string_view name() const noexcept override { return "MPI"; }
  void send(int to, void const* data, std::int64_t bytes) override {
    for (std::int64_t at = 0; at < bytes && error_.empty(); at += piece)
      note(MPI_Isend(static_cast<std::byte const*>(data) + at, size_at(at, bytes), MPI_BYTE, to, 0,
                     world_.get(), add(false)),
           "send");
  }
  void receive(int from, void* data, std::int64_t bytes) override {
    for (std::int64_t at = 0; at < bytes && error_.empty(); at += piece)
      note(MPI_Irecv(static_cast<std::byte*>(data) + at, size_at(at, bytes), MPI_BYTE, from, 0, world_.get(),
                     add(true)),
           "receive");
  }
  bool progress() override {
    if (error_.empty() && !requests_.empty()) advance();
    if (error_.empty()) return requests_.empty();
    // An error of MPI is often the result of a lost rank. The launch notices the lost rank at about the same
    // time, and its message is better because it names the rank. So this function throws the error of MPI
    // only after 3 s.
    if (detail::SteadyClock::now() - failed_at_ > std::chrono::seconds(3))
      throw Error(ErrorKind::failed, error_, launch_->rank());
    return false;
  }
  /// Continues the sends and receives for a short time, so that messages between ranks that still run can
  /// complete. Otherwise this process would free memory from which another process reads, and some MPI
  /// libraries end that other process.
  void abandon() noexcept override {
    // Messages of the lost rank never complete. So the loop ends when no message has completed for 50 ms, or
    // after 500 ms in all. It must be short, because the launcher may kill this process soon.
    auto moved = detail::SteadyClock::now();
    auto const last = moved + std::chrono::milliseconds(500);
    while (error_.empty() && !requests_.empty()) {
      std::size_t const before = requests_.size();
      advance();
      auto const now = detail::SteadyClock::now();
      if (requests_.size() < before) moved = now;
      if (now - moved > std::chrono::milliseconds(50) || now > last) break;
      std::this_thread::yield();
    }
    cancel_receives();
  }

 private:
  static constexpr std::int64_t piece = std::int64_t{1} << 30;  // bytes of a message; MPI counts them as int

  static int size_at(std::int64_t at, std::int64_t bytes) {
    return static_cast<int>(std::min(piece, bytes - at));
  }
  /// Cancels the receives, so that MPI never writes to memory that the caller frees. A cancelled receive
  /// completes without other ranks.
  void cancel_receives() noexcept {
    for (std::size_t i = 0; i < requests_.size(); ++i)
      if (receives_[i]) MPI_Cancel(&requests_[i]);
    auto const last = detail::SteadyClock::now() + std::chrono::seconds(1);
    auto const pending = [&] {
      return std::find(receives_.begin(), receives_.end(), true) != receives_.end();
    };
    while (error_.empty() && pending() && detail::SteadyClock::now() < last) advance();
  }
  MPI_Request* add(bool receives) {
    requests_.push_back(MPI_REQUEST_NULL);
    receives_.push_back(receives);
    if (done_.size() < requests_.size()) {
      done_.resize(requests_.size());
      statuses_.resize(requests_.size());
    }
    return &requests_.back();
  }
  void advance() {
    int count = 0;
    int const code = MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, done_.data(),
                                  statuses_.data());
    if (code == MPI_SUCCESS && count == 0) return;
    if (code == MPI_ERR_IN_STATUS) {
      for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
        note(statuses_[i].MPI_ERROR, "move data");
    }
    note(code, "move data");
    std::size_t left = 0;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      if (requests_[i] == MPI_REQUEST_NULL) continue;
      requests_[left] = requests_[i];
      receives_[left++] = receives_[i];
    }
    requests_.resize(left);
    receives_.resize(left);
  }
  /// If `code` is the first error, stores its message, the time and the failure. `what` follows "MPI could
  /// not".
  void note(int code, char const* what) {
    if (code == MPI_SUCCESS || !error_.empty()) return;
    error_ = sentence({"MPI could not ", what, " on rank ", launch_->rank(), ": ", detail::mpi_text(code)});
    failed_at_ = detail::SteadyClock::now();
    world_.library().fail();
  }

  std::shared_ptr<Launch> launch_;
  detail::MpiWorld world_;
  int const exceptions_ = std::uncaught_exceptions();
  std::vector<MPI_Request> requests_;  // the vectors keep their capacity, so a step allocates nothing
  std::vector<bool> receives_;         // whether each request is a receive
  std::vector<int> done_;
  std::vector<MPI_Status> statuses_;
  std::string error_;
  detail::SteadyClock::time_point failed_at_{};
};

/// The HostLink that connects processes through MPI.
inline constexpr HostLink mpi_link{detail::meet_through_mpi,
                                   [](std::shared_ptr<Launch> const& launch) -> std::unique_ptr<Messages> {
                                     // MPI_Init waits for all ranks and does not notice that one has
                                     // ended. So the launch makes sure first that all ranks are there.
                                     launch->all_gather({}, "start MPI");
                                     return std::make_unique<Mpi>(launch);
                                   }};

namespace detail {
/// Stores `mpi_link` in `linked_hosts` before main starts, so that launches of this program connect hosts
/// through MPI.
inline bool const links_hosts = (linked_hosts.store(&mpi_link), true);
}  // namespace detail

}  // namespace comm
}  // namespace v0
}  // namespace tessera
