// SPDX-License-Identifier: Apache-2.0
// Provides Launch, one process's connection to all processes that a launcher started. The processes connect
// to rank 0 through TCP. They exchange small values, and each one learns when another process is lost.
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "tessera/comm/environment.hpp"
#include "tessera/comm/launch_identity.hpp"
#include "tessera/comm/messages.hpp"
#include "tessera/comm/rendezvous.hpp"
#include "tessera/comm/socket.hpp"
#include "tessera/config.hpp"
#include "tessera/core/error.hpp"
#include "tessera/detail/clock.hpp"

namespace tessera {
inline namespace v0 {
namespace comm {
/// The connection of this process to all processes of its launch. Any thread may call the functions, but only
/// one thread at a time may call `all_gather`. The object has a thread that receives messages. On rank 0 it
/// also has the server to which all processes connect, with a thread of its own.
class Launch {
 public:
  /// Connects to rank 0, and waits until all processes of the launch have connected. Throws Error(config) if
  /// a process does not connect within the join timeout, if two processes have the same rank, or if processes
  /// have different world sizes or different builds of the program. `get` reads environment variables.
  Launch(LaunchEnvironment environment, GetEnvironment const& get, LaunchOptions const& options = {})
      : environment_(std::move(environment)), options_(options) {
    detail::name_launch(environment_, get, own_);
    own_.rank = rank();
    own_.world = world();
    own_.binary = detail::build_id();
    own_.member = {detail::host_name(), ::getpid(), detail::machine_text()};
    // Rank 0 listens on the first free port from `first_port_` on. The master port is not free if the
    // launcher itself listens on it.
    first_port_ = environment_.master_port > 0 ? environment_.master_port : 29500;
    if (environment_.master_port_taken) ++first_port_;
    if (environment_.master_address.empty())
      throw Error(
          ErrorKind::config,
          describe(environment_) + " on " + own_.member.host +
              " does not say where ranks meet; set MASTER_ADDR to the host of rank 0, and MASTER_PORT, "
              "on every rank, or for ranks on the CPUs of several hosts build the program with "
              "-DTESSERA_MPI=ON",
          rank());
    detail::Addresses const addresses(environment_.master_address, own_.member.host);
    if (rank() == 0)
      lead(addresses);
    else
      join(addresses);
    progress_.resize(static_cast<std::size_t>(world()));
    receiver_ = std::thread([this] { receive(); });
  }
  Launch(Launch const&) = delete;
  Launch& operator=(Launch const&) = delete;
  ~Launch() {
    {
      std::lock_guard lock(mutex_);
      leaving_ = true;
      connection_.send(detail::frame(detail::Frame::leave).done());
    }
    if (receiver_.joinable()) receiver_.join();
  }

  LaunchEnvironment const& environment() const noexcept { return environment_; }
  int rank() const noexcept { return environment_.rank; }
  int world() const noexcept { return environment_.world; }
  std::vector<Member> const& members() const noexcept { return members_; }
  /// Returns the number of ranks on the host of this rank.
  int ranks_on_host() const noexcept {
    return static_cast<int>(std::count_if(members_.begin(), members_.end(), [this](Member const& other) {
      return other.shares_host(member(rank()));
    }));
  }
  /// Returns the name of the network interface through which this rank and the ranks on other hosts reach
  /// each other. If this rank is on the host of rank 0, it is the interface to which ranks on other hosts
  /// connect, otherwise the interface of this rank's connection to rank 0. Returns an empty text if all ranks
  /// are on one host. All ranks must call it together. Waits for the other ranks.
  std::string network_interface() {
    std::vector<std::string> const roots = all_gather(root_address_, "compare their networks");
    auto const remote = std::find_if(members_.begin(), members_.end(), [this](Member const& other) {
      return !other.shares_host(members_.front());
    });
    if (remote == members_.end()) return {};
    bool const at_root = member(rank()).shares_host(members_.front());
    return detail::interface_of(at_root ? roots[static_cast<std::size_t>(remote - members_.begin())]
                                        : own_address_);
  }
  /// Returns whether two ranks run on one host and can share memory.
  bool share_memory(int one, int other) const { return member(one).machine == member(other).machine; }
  /// Returns the name of a rank for error messages, such as "rank 2 (process 4711 on node3)".
  std::string name(int rank) const {
    return sentence({"rank ", rank, " (", detail::in_words(member(rank)), ")"});
  }

  /// Returns the number of the current communicator: how often `begin` was called.
  std::uint64_t communicator() const {
    std::lock_guard lock(mutex_);
    return communicator_;
  }
  /// Starts a new communicator of the launch, which takes the place of the one before. A failure of an
  /// earlier communicator is forgotten, unless a process was lost. All ranks must call `begin` equally often.
  /// Does not wait for other ranks.
  void begin() {
    std::scoped_lock lock(watching_, mutex_);
    left_ = false;
    last_ = {};
    ++communicator_;
    exchange_ = 0;
    if (fault_ && fault_->communicator < communicator_) fault_.reset();
    failures_.clear();
    failed_.store(fault_.has_value(), std::memory_order_release);
  }

  /// Sends `value` to all ranks, and returns the values of all ranks in rank order. All ranks must call this
  /// function together. It waits for all ranks, but if `limit` is given, at most for this duration. `what`
  /// names the purpose in error messages, where it follows "wants to", for example "compare their GPUs".
  /// Throws PeerLost if a rank is lost or the limit has passed.
  std::vector<std::string> all_gather(std::string_view value, char const* what,
                                      std::optional<std::chrono::duration<double>> limit = std::nullopt) {
    std::unique_lock lock(mutex_);
    std::uint64_t const number = communicator_ << 16 | ++exchange_;
    connection_.send(detail::frame(detail::Frame::gather).number(number).text(what).text(value).done());
    auto const over = [&] { return gathered_ == number || fault_; };
    if (!limit)
      changed_.wait(lock, over);
    else if (!changed_.wait_for(lock, *limit, over))
      throw PeerLost(sentence({"rank ", rank(), " waited ", detail::seconds_text(limit->count()), " to ",
                               what, ", but some ranks did not come"}),
                     -1);
    if (gathered_ != number) raise(*fault_, sentence({"waited to ", what}));
    return std::move(values_);
  }

  /// Returns the failure that ended the current communicator, if any. Costs one atomic load if there is no
  /// failure.
  std::optional<Fault> fault() const {
    if (!failed_.load(std::memory_order_acquire)) return std::nullopt;
    std::lock_guard lock(mutex_);
    return fault_;
  }
  /// The argument for `give_up` if an exception ends this rank.
  static constexpr char by_exception[] = "it ended with an exception; see its own message";
  /// Ends the current communicator on all ranks: declares this rank lost, with the reason `cause`. If there
  /// is no memory for the message, does nothing. Then the other ranks only notice later that this rank has
  /// left.
  void give_up(char const* cause) noexcept {
    try {
      lose(rank(), cause);
    } catch (...) {
    }
  }
  /// Ends the current communicator on all ranks, unless it has already ended. `rank` is the rank that is lost
  /// (-1: unknown), and `text` is the reason. `mismatch` says that ranks request different collectives. If
  /// the lost rank is not this rank, the server appends to `text` where the lost rank was last seen. This
  /// function waits up to 1 s for the answer of the server.
  void lose(int rank, std::string const& text, bool mismatch = false) {
    std::unique_lock lock(mutex_);
    if (fault_) return;
    Fault fault{communicator_, rank, mismatch, text};
    connection_.send(detail::frame_of(fault));
    changed_.wait_for(lock, std::chrono::seconds(1), [&] { return fault_.has_value(); });
    set_fault(std::move(fault));
  }
  /// Tells all ranks that this rank has failed with the message `text`. Returns whether this rank should
  /// print the message. Returns false if a lower rank fails with the same message within half a second,
  /// because that rank prints it.
  bool first_to_fail(std::string const& text) {
    std::unique_lock lock(mutex_);
    failures_.push_back({communicator_, rank(), false, text});
    connection_.send(detail::frame_of(failures_.back()));
    if (rank() == 0) return true;
    return !changed_.wait_for(lock, std::chrono::milliseconds(500), [&] {
      return std::any_of(failures_.begin(), failures_.end(), [&](Fault const& other) {
        return other.rank >= 0 && other.rank < rank() && other.text == text;
      });
    });
  }
  /// Throws the exception for the failure `fault`: Error(failed) if ranks request different collectives,
  /// otherwise PeerLost. `own` says what this rank did, such as "was in collective 17". The text of the
  /// PeerLost ends with `own`. The exception gets the unit `unit`.
  [[noreturn]] void raise(Fault const& fault, std::string const& own, std::string const& unit = {}) const {
    if (fault.mismatch) throw Error(ErrorKind::failed, fault.text, rank(), unit);
    int const lost = fault.rank;
    std::string const who = lost < 0         ? "the communicator has ended: "
                            : lost == rank() ? name(lost) + " was declared lost: "
                                             : name(lost) + " is lost: ";
    throw PeerLost(sentence({who, fault.text, " [rank ", rank(), " on ", member(rank()).host, " ", own, "]"}),
                   lost, unit);
  }

  /// Sets the function that returns the progress of this rank. Until the next call of `watch`, the receiver
  /// thread calls the function about twice a second and sends the result to rank 0, which sends it to all
  /// ranks. An empty function says that this rank enters no more collectives of the current communicator.
  void watch(void const* owner, std::function<Progress()> own) {
    std::lock_guard lock(watching_);
    left_ = false;
    owner_ = owner;
    watched_ = std::move(own);
    tells_now_.store(true, std::memory_order_relaxed);
  }
  /// Ends what `watch` began: tells the other ranks that this rank has left the communicator. `cause`, if it
  /// is not null, is why this rank gives up. Does nothing if a newer communicator has another owner.
  void unwatch(void const* owner, char const* cause = nullptr) noexcept {
    {
      std::lock_guard lock(watching_);
      if (owner_ != owner) return;
    }
    if (cause) give_up(cause);
    std::lock_guard lock(watching_);
    left_ = true;
    owner_ = nullptr;
    if (watched_) last_ = watched_();
    watched_ = {};
    tells_now_.store(true, std::memory_order_relaxed);
  }
  /// Returns the progress that a rank had about a second ago. Its member `place` is empty, except for this
  /// rank.
  Progress progress(int rank) const {
    std::lock_guard lock(mutex_);
    return progress_[static_cast<std::size_t>(rank)];
  }

 private:
  using Clock = detail::SteadyClock;
  static constexpr int most_ports = 512;

  Member const& member(int rank) const { return members_[static_cast<std::size_t>(rank)]; }

  int port(int number) const {
    int const at = first_port_ + number;
    return at <= 65535 ? at : at - 65536 + 1024;
  }

  /// Starts the server, and joins it. Only rank 0 calls this function.
  void lead(detail::Addresses const& addresses) {
    bool const here = addresses.are_here();
    serve(here ? ""
               : "; the other ranks look for it at " + environment_.master_address +
                     ", which is not an address of this host");
    look_for_rank_0(addresses, here);
    try {
      join(detail::Addresses("127.0.0.1", own_.member.host));
    } catch (Error const&) {
      if (!here) look_for_rank_0(addresses, here);  // the other process may have started later
      throw;
    }
  }

  /// Looks for another process with rank 0 of this launch, at the ports from `first_port_` to the port of
  /// this process. Throws Error(config) if there is one. `here` says whether `addresses` are those of this
  /// host.
  void look_for_rank_0(detail::Addresses const& addresses, bool here) {
    own_.looks = true;
    for (int number = 0; number < most_ports; ++number) {
      if (here && port(number) == served_) break;
      int error = 0;
      detail::Descriptor socket = addresses.connect(port(number), std::chrono::milliseconds(500), error);
      if (socket)
        greet(std::move(socket), {}, std::chrono::seconds(1));
      else if (error != ECONNREFUSED)
        break;
      if (port(number) == served_) break;
    }
    own_.looks = false;
  }

  /// Starts the server on rank 0. It listens on the first free port from `first_port_` on. The other ranks
  /// try these ports in the same order. `remark` follows the port in error messages.
  void serve(std::string const& remark) {
    for (int number = 0; number < most_ports; ++number) {
      detail::Descriptor listener = detail::listen_on(port(number));
      if (!listener) continue;
      served_ = port(number);
      server_ = std::make_unique<detail::RendezvousServer>(std::move(listener), own_,
                                                           sentence({"port ", served_, remark}),
                                                           detail::launch_advice(environment_), options_);
      return;
    }
    throw_error(ErrorKind::config,
                {"rank 0 found no free port from ", port(0), " to ", port(most_ports - 1), " on ",
                 own_.member.host, ": ", std::strerror(errno), "; set MASTER_PORT to another one"},
                0);
  }

  void join(detail::Addresses const& addresses) {
    auto const start = Clock::now();
    auto const deadline = start + std::chrono::duration_cast<Clock::duration>(options_.join_timeout);
    int error = 0;
    bool other_server = false;
    for (;;) {
      // Another launch may use the same address with the same key. The ranks of one launch on a host usually
      // have the same parent process. So for the first 5 s, this rank joins only if rank 0 has the same
      // parent as this rank. After 5 s it joins with any parent, because a script may have started each rank
      // from a different shell.
      own_.any = Clock::now() - start > std::chrono::seconds(5);
      for (int number = 0; number < (served_ ? 1 : most_ports); ++number) {
        int last = 0;
        detail::Descriptor socket =
            addresses.connect(served_ ? served_ : port(number), std::chrono::seconds(2), last);
        if (!socket) {
          error = last;
          if (last != ECONNREFUSED) break;  // the host cannot be reached at any port
          continue;
        }
        if (greet(std::move(socket), deadline, std::chrono::seconds(5))) return;
        other_server = true;
      }
      if (Clock::now() > deadline) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    bool const unreachable = error && error != ECONNREFUSED;
    std::string const advice =
        unreachable
            ? "set MASTER_ADDR to an address of rank 0's host, and check the network between it and " +
                  own_.member.host
            : detail::launch_advice(environment_) + detail::or_wait_longer;
    throw_error(ErrorKind::config,
                {"rank ", rank(), " (", detail::in_words(own_.member), ") did not find rank 0 within ",
                 detail::seconds_text(options_.join_timeout.count()), " at ", environment_.master_address,
                 ", ports ", port(0), " to ", port(most_ports - 1), ": ",
                 unreachable    ? std::strerror(error)
                 : other_server ? "only other programs listen there"
                                : "no program listens there",
                 "; ", advice},
                0);
  }

  /// Introduces this process to the server at the other end of `socket`, and waits until all ranks have
  /// joined. Returns false if the server belongs to another program or launch. Throws Error(config) if the
  /// server refuses this process or the launch fails. A server that does not answer within `patience` belongs
  /// to another program.
  bool greet(detail::Descriptor socket, Clock::time_point deadline, std::chrono::seconds patience) {
    detail::Connection connection(std::move(socket));
    connection.send(own_.frame());
    bool accepted = false;
    auto limit = Clock::now() + patience;
    detail::FrameReader frame;
    for (;;) {
      if (!connection.take(frame)) {
        if (!connection.open() || Clock::now() > limit) {
          if (!accepted) return false;
          throw_error(ErrorKind::config,
                      {"rank ", rank(), " (", detail::in_words(own_.member),
                       ") had joined, but rank 0 ended before all ranks had; see the error of rank 0"},
                      rank());
        }
        pollfd waiting{connection.socket(), connection.events(), 0};
        ::poll(&waiting, 1, 50);
        connection.flush();
        connection.receive();
        continue;
      }
      switch (static_cast<detail::Frame>(frame.type())) {
        case detail::Frame::accepted:
          accepted = true;
          limit = std::max(deadline, Clock::now()) + std::chrono::seconds(30);
          break;
        case detail::Frame::refused:
          throw Error(ErrorKind::config, frame.text(), rank());
        case detail::Frame::joined:
          for (int other = 0; other < world(); ++other) {
            Member member;
            member.host = frame.text();
            member.process = static_cast<std::int64_t>(frame.number());
            member.machine = frame.text();
            members_.push_back(std::move(member));
          }
          connection_ = std::move(connection);
          root_address_ = detail::end_address(connection_.socket(), true);
          own_address_ = detail::end_address(connection_.socket(), false);
          return true;
        default:
          return false;
      }
    }
  }

  /// Runs the receiver thread. Receives messages from the server and sends the progress of this rank. Returns
  /// when this object is destroyed or when rank 0 is lost.
  void receive() {
    auto told = Clock::time_point{}, heard = Clock::now(), turn = heard;
    for (;;) {
      pollfd waiting{connection_.socket(), POLLIN, 0};
      ::poll(&waiting, 1, 50);
      auto const now = Clock::now();
      if (now - turn > std::chrono::seconds(2)) heard = now;  // this process was stopped, not rank 0
      turn = now;
      if (parent_ > 0 && ::getppid() != std::exchange(parent_, ::getppid())) ::kill(::getpid(), SIGTERM);
      Progress own;
      bool const tells = now - told > std::chrono::milliseconds(500) ||
                         tells_now_.exchange(false, std::memory_order_relaxed);
      if (tells) {
        told = now;
        std::lock_guard lock(watching_);
        if (watched_) last_ = watched_();
        own = last_;
        own.left = left_;
      }
      std::lock_guard lock(mutex_);
      if (tells) {
        own.communicator = communicator_;
        progress_[static_cast<std::size_t>(rank())] = own;
        auto beat = detail::frame(detail::Frame::beat);
        write(own, beat);
        connection_.send(beat.text(own.place).done());
      }
      connection_.flush();
      connection_.receive();
      detail::FrameReader frame;
      bool closed = false;
      while (connection_.take(frame)) {
        heard = now;
        closed = closed || frame.type() == static_cast<std::uint8_t>(detail::Frame::closed);
        note(frame);
      }
      if (closed || (leaving_ && !connection_.has_output())) return;
      if (!connection_.open()) return set_fault({detail::every_communicator, 0, false, "its process ended"});
      if (now - heard > options_.silence + std::chrono::seconds(1)) {
        set_fault({detail::every_communicator, 0, false,
                   sentence({"it gave no sign of life for ", detail::seconds_text(options_.silence.count()),
                             "; its process is stopped or its host cannot be reached"})});
        return;
      }
    }
  }

  void note(detail::FrameReader& frame) {
    switch (static_cast<detail::Frame>(frame.type())) {
      case detail::Frame::state:
        for (int other = 0; other < world(); ++other) {
          Progress progress;
          read(frame, progress);
          if (other != rank()) progress_[static_cast<std::size_t>(other)] = std::move(progress);
        }
        break;
      case detail::Frame::gathered:
        gathered_ = frame.number();
        values_.clear();
        for (int other = 0; other < world(); ++other) values_.push_back(frame.text());
        changed_.notify_all();
        break;
      case detail::Frame::fault:
        if (Fault fault = detail::fault_of(frame); fault.communicator >= communicator_) {
          failures_.push_back(fault);
          set_fault(std::move(fault));
        }
        break;
      default:
        break;
    }
  }

  /// Stores the first failure of the communicator; ignores later ones. The caller must hold the lock
  /// `mutex_`.
  void set_fault(Fault fault) {
    if (!fault_) fault_ = std::move(fault);
    failed_.store(true, std::memory_order_release);
    changed_.notify_all();
  }

  LaunchEnvironment const environment_;
  LaunchOptions const options_;
  detail::Hello own_;
  /// The process id of the launcher. When the launcher ends, this process ends itself with SIGTERM. 0 if a
  /// script may have started the rank, because such a script may end before its ranks.
  ::pid_t parent_ = detail::started_by_script(environment_) ? 0 : ::getppid();
  int first_port_ = 0;
  int served_ = 0;
  std::unique_ptr<detail::RendezvousServer> server_;
  std::vector<Member> members_;
  std::string root_address_;  ///< of rank 0, as this rank reached it
  std::string own_address_;   ///< of this rank in its connection to rank 0
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  detail::Connection connection_;
  std::uint64_t communicator_ = 0;
  std::uint64_t exchange_ = 0;
  std::uint64_t gathered_ = 0;
  std::vector<std::string> values_;
  std::optional<Fault> fault_;   // the first failure of the current communicator
  std::vector<Fault> failures_;  // all failures of the current communicator
  std::atomic<bool> failed_{false};
  std::vector<Progress> progress_;
  bool leaving_ = false;
  std::mutex watching_;
  std::function<Progress()> watched_;
  void const* owner_ = nullptr;  // the communicator that `watched_` belongs to
  Progress last_;                // the last result of `watched_`; still sent after this rank has left
  bool left_ = false;
  std::atomic<bool> tells_now_{false};
  std::thread receiver_;
};

/// Returns the options of a launch. The variable TESSERA_JOIN_TIMEOUT, if it is set, is the join timeout in
/// seconds, from 1 to 86400. Throws Error(config) for another value.
inline LaunchOptions launch_options(GetEnvironment const& get) {
  LaunchOptions options;
  detail::LaunchReader const read(get);
  if (read.has("TESSERA_JOIN_TIMEOUT"))
    options.join_timeout = std::chrono::seconds(read.number("TESSERA_JOIN_TIMEOUT", 1, 86400));
  return options;
}

/// Two functions that connect processes which do not share memory, for example on several hosts. The CMake
/// target tessera::mpi provides such a link.
struct HostLink {
  /// Fills in the address and the port of rank 0 in `launch` if the launcher does not give the address. All
  /// ranks must call it together.
  void (*meet)(LaunchEnvironment& launch, LaunchOptions const& options);
  /// Returns the object that moves bytes between the ranks of a launch. All ranks must call it together.
  std::unique_ptr<Messages> (*connect)(std::shared_ptr<Launch> const& launch);
};

/// The HostLink that launches of this program use, or null if there is none. A program that links
/// tessera::mpi stores its link here before main starts.
inline std::atomic<HostLink const*> linked_hosts{nullptr};

/// Connects this process to the other processes of its launch. `get` reads environment variables. Returns
/// null if there is no launcher, or if it started only one process. Throws Error(config) in the batch script
/// of a SLURM job with several tasks, because the script itself is not one of the tasks. Also throws the
/// errors of launch_environment and of Launch's constructor.
inline std::shared_ptr<Launch> join_launch(GetEnvironment const& get) {
  LaunchEnvironment environment = launch_environment(get);
  if (environment.world == 1) return nullptr;
  if (environment.source == "SLURM batch script")
    throw_error(
        ErrorKind::config,
        {"this program was started in a batch script of SLURM, without srun, and the job has ",
         environment.world, " tasks; start it with srun, or unset SLURM_PROCID to run it once, alone"});
  LaunchOptions const options = launch_options(get);
  if (HostLink const* const link = linked_hosts.load(std::memory_order_relaxed))
    link->meet(environment, options);
  return std::make_shared<Launch>(std::move(environment), get, options);
}

/// Returns the launch of this process, or null if there is no launcher or it started only one process. The
/// first call connects to the other processes and throws the errors of join_launch.
inline std::shared_ptr<Launch> const& launch_of_process() {
  static std::shared_ptr<Launch> const launch =
      join_launch([](char const* name) -> char const* { return std::getenv(name); });
  return launch;
}

}  // namespace comm
}  // namespace v0
}  // namespace tessera
