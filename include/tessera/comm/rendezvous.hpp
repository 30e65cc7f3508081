// SPDX-License-Identifier: Apache-2.0
// Provides RendezvousServer, to which all processes of a launch connect through TCP. Rank 0 runs it in a
// thread. The server exchanges small values between the ranks, and tells all ranks when one of them is lost.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tessera/comm/socket.hpp"
#include "tessera/comm/thread_group.hpp"
#include "tessera/config.hpp"
#include "tessera/core/error.hpp"
#include "tessera/detail/clock.hpp"

namespace tessera {
inline namespace v0 {
namespace comm {

/// Describes one process of a launch. Every rank gets the descriptions of all ranks.
struct Member {
  std::string host;          ///< the name of the host
  std::int64_t process = 0;  ///< the process id
  std::string machine;       ///< `machine_text()`: equal for processes that can share memory

  bool operator==(Member const& other) const = default;
  /// Returns whether two processes run on one host: under one host name, since the same boot.
  bool shares_host(Member const& other) const {
    return host == other.host &&
           machine.substr(0, machine.find(':')) == other.machine.substr(0, other.machine.find(':'));
  }
};

/// The failure that ended a communicator.
struct Fault {
  std::uint64_t communicator = 0;  ///< the number of the communicator, or `every_communicator`
  int rank = -1;                   ///< the lost rank; -1: unknown
  bool mismatch = false;           ///< ranks request different collectives
  std::string text;
};

/// The progress of a rank in a communicator of a launch. The other ranks get it about a second late.
struct Progress {
  std::uint64_t communicator = 0;  ///< the number of the communicator (Launch::communicator)
  std::uint64_t word = 0;          ///< the watch word of the last collective that was reached
  /// reached[c] is the number of collectives that the rank has reached with the number c as
  /// ProcessGroup::communicator. The transport Processes counts all collectives in reached[0].
  std::vector<std::uint64_t> reached;
  std::uint64_t beats = 0;  ///< the number of calls of Transport::heartbeat
  bool left = false;        ///< the rank enters no more collectives of this communicator
  std::string place;        ///< such as "in collective 17, all_gather of 64 bytes"

  std::uint64_t total() const { return std::accumulate(reached.begin(), reached.end(), std::uint64_t{0}); }
};

struct LaunchOptions {
  /// Seconds that a rank waits until all ranks have joined. With the default, a launch that misses a rank
  /// ends within 30 s, which includes the start of the processes.
  std::chrono::duration<double> join_timeout{25.0};
  /// If a process gives no sign of life for this number of seconds, its rank is lost.
  std::chrono::duration<double> silence{10.0};
};

namespace detail {

using SteadyClock = std::chrono::steady_clock;

/// The types of the messages (frames) between a process and the server. Each comment says what the message
/// means, and lists its fields in brackets.
enum class Frame : std::uint8_t {
  hello = 1,  ///< a process introduces itself [the fields that Hello::frame writes]
  accepted,   ///< the server expects this rank []
  elsewhere,  ///< the server belongs to another launch []
  refused,    ///< the launch has failed [error message]
  joined,     ///< all ranks have joined [host, process, machine of each rank]
  beat,       ///< the progress of a rank [communicator, word, beats, left, reached, place]
  state,      ///< the progress of all ranks [the fields of `beat` without place, of each rank]
  gather,     ///< a value of Launch::all_gather [number, what, value]
  gathered,   ///< the values of all ranks [number, the value of each rank]
  fault,      ///< a failure [communicator, rank + 1, mismatch, text]
  leave,      ///< the rank has left []
  closed      ///< all ranks have left []
};
inline FrameWriter frame(Frame type) { return FrameWriter(static_cast<std::uint8_t>(type)); }

inline constexpr char launch_protocol[] = "tessera launch 1";
/// The value of Fault::communicator if a process is lost. Such a failure ends all communicators of the
/// launch.
inline constexpr std::uint64_t every_communicator = std::numeric_limits<std::uint64_t>::max();

inline std::string frame_of(Fault const& fault) {
  return frame(Frame::fault)
      .number(fault.communicator)
      .number(static_cast<std::uint64_t>(fault.rank + 1))
      .number(fault.mismatch)
      .text(fault.text)
      .done();
}
inline Fault fault_of(FrameReader& frame) {
  Fault fault;
  fault.communicator = frame.number();
  fault.rank = static_cast<int>(frame.number()) - 1;
  fault.mismatch = frame.number() != 0;
  fault.text = frame.text();
  return fault;
}

/// The introduction of a process: its first message to the server.
struct Hello {
  std::string key;     ///< identifies the launch; all its ranks have the same key
  std::string parent;  ///< the parent process; differs if launches on one host have the same key
  bool any = false;    ///< true: a server with another parent may accept the process too
  bool looks = false;  ///< true: rank 0, which has a server itself, looks for another process with rank 0
  int rank = 0;
  int world = 1;
  std::string binary;  ///< the build id of the program; empty: unknown
  Member member;

  std::string frame() const {
    auto frame = detail::frame(Frame::hello);
    frame.text(launch_protocol)
        .text(key)
        .text(member.machine)
        .text(parent)
        .number(any)
        .number(static_cast<std::uint64_t>(rank))
        .number(static_cast<std::uint64_t>(world))
        .text(binary)
        .text(member.host)
        .number(static_cast<std::uint64_t>(member.process));
    if (looks) frame.number(1);
    return frame.done();
  }
  /// Fills this object from a frame. Returns false if the frame is not an introduction in this version of the
  /// protocol.
  bool read(FrameReader frame) {
    if (frame.type() != static_cast<std::uint8_t>(Frame::hello) || frame.text() != launch_protocol)
      return false;
    key = frame.text();
    member.machine = frame.text();
    parent = frame.text();
    any = frame.number() != 0;
    rank = static_cast<int>(frame.number());
    world = static_cast<int>(frame.number());
    binary = frame.text();
    member.host = frame.text();
    member.process = static_cast<std::int64_t>(frame.number());
    looks = !frame.at_end() && frame.number() != 0;
    return frame.good() && frame.at_end();
  }
};

/// Writes all members of `progress` except `place` to a frame.
inline void write(Progress const& progress, FrameWriter& frame) {
  frame.number(progress.communicator)
      .number(progress.word)
      .number(progress.beats)
      .number(progress.left)
      .number(progress.reached.size());
  for (std::uint64_t const reached : progress.reached) frame.number(reached);
}
inline void read(FrameReader& frame, Progress& progress) {
  progress.communicator = frame.number();
  progress.word = frame.number();
  progress.beats = frame.number();
  progress.left = frame.number() != 0;
  progress.reached.clear();
  for (std::uint64_t left = frame.number(); left > 0 && frame.good(); --left)
    progress.reached.push_back(frame.number());
}

/// Follows the advice in the error message of a rank that has waited in vain.
inline constexpr char or_wait_longer[] = ", or raise TESSERA_JOIN_TIMEOUT if ranks start late";

inline std::string in_words(Member const& member) {
  return sentence({"process ", member.process, " on ", member.host});
}

/// The server of one launch. It runs in its own thread, and only this thread uses the members, except
/// `stop_`.
class RendezvousServer {
 public:
  /// Starts the server on the listening socket `listener`. `own` is the introduction of rank 0. For error
  /// messages, `place` names the port, and `advice` says how to start the launch.
  RendezvousServer(Descriptor listener, Hello own, std::string place, std::string advice,
                   LaunchOptions const& options)
      : listener_(std::move(listener)),
        own_(std::move(own)),
        place_(std::move(place)),
        advice_(std::move(advice)),
        options_(options),
        ranks_(static_cast<std::size_t>(own_.world)),
        deadline_(SteadyClock::now() +
                  std::chrono::duration_cast<SteadyClock::duration>(options.join_timeout)) {
    thread_ = std::thread([this] { serve(); });
  }
  RendezvousServer(RendezvousServer const&) = delete;
  RendezvousServer& operator=(RendezvousServer const&) = delete;
  /// Waits until all ranks have left, for at most 5 s.
  ~RendezvousServer() {
    stop_.store(true, std::memory_order_relaxed);
    thread_.join();
  }

 private:
  struct Client {
    Connection connection;
    int rank = -1;
    SteadyClock::time_point heard = SteadyClock::now();
  };
  struct Rank {
    Member member;
    Progress progress;
    bool here = false;
    bool left = false;
    bool lost = false;
    std::string last_words;  // for an error message: why a rank that had joined is not here
  };
  struct Gather {
    std::uint64_t number = 0;
    std::string what;
    std::vector<std::string> values;
    std::vector<bool> given;
    std::size_t count = 0;
  };

  void serve() {
    auto told = SteadyClock::now(), turn = told, stopping = SteadyClock::time_point::max();
    for (;;) {
      wait();
      auto const now = SteadyClock::now();
      // If this thread has not run for more than 2 s, its process was stopped or the host was suspended. The
      // thread could not receive signs of life then. So the time of silence of every rank starts again now.
      if (now - turn > std::chrono::seconds(2))
        for (auto const& client : clients_) client->heard = now;
      turn = now;
      accept();
      for (std::size_t i = 0; i < clients_.size(); ++i) hear(*clients_[i]);
      std::erase_if(clients_, [](auto const& client) { return !client->connection.open(); });
      if (!complete_ && !failed_ && now > deadline_) refuse_missing();
      if (complete_) blame_silent(now);
      if (complete_ && now - told > std::chrono::milliseconds(500)) {
        told = now;
        tell_state();
      }
      if (!stop_.load(std::memory_order_relaxed)) continue;
      stopping = std::min(stopping, now + std::chrono::seconds(complete_ ? 5 : 1));
      bool const all_left =
          std::all_of(ranks_.begin(), ranks_.end(), [](Rank const& rank) { return rank.left || rank.lost; });
      if (!all_left && now < stopping && !clients_.empty()) continue;
      tell(frame(Frame::closed).done());
      for (int flushes = 0; flushes < 20 && unsent(); ++flushes) wait();
      return;
    }
  }

  bool unsent() const {
    return std::any_of(clients_.begin(), clients_.end(), [](auto const& client) {
      return client->connection.open() && client->connection.has_output();
    });
  }

  /// Waits for data of any client, for at most 50 ms. Then sends pending output.
  void wait() {
    std::vector<pollfd> sockets{{listener_.get(), POLLIN, 0}};
    for (auto const& client : clients_)
      sockets.push_back({client->connection.socket(), client->connection.events(), 0});
    ::poll(sockets.data(), sockets.size(), 50);
    for (auto const& client : clients_) client->connection.flush();
  }

  void accept() {
    for (;;) {
      Descriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!socket) return;
      clients_.push_back(std::make_unique<Client>());
      clients_.back()->connection = Connection(std::move(socket));
    }
  }

  void hear(Client& client) {
    client.connection.receive();
    FrameReader frame;
    while (client.connection.take(frame)) {
      client.heard = SteadyClock::now();
      if (client.rank < 0)
        greet(client, std::move(frame));
      else
        answer(client.rank, frame);
    }
    if (!client.connection.open() && client.rank >= 0) disconnect(client.rank);
  }

  void greet(Client& client, FrameReader const& frame) {
    Hello hello;
    if (!hello.read(frame)) return client.connection.send(detail::frame(Frame::elsewhere).done());
    bool const same_parent = hello.member.machine != own_.member.machine || hello.parent == own_.parent;
    bool const valid = hello.rank >= 0 && hello.rank < own_.world;
    Rank* const rank = valid ? &ranks_[static_cast<std::size_t>(hello.rank)] : nullptr;
    bool const other_launch = hello.key != own_.key || (!same_parent && (!hello.any || (rank && rank->here)));
    if (other_launch) return client.connection.send(detail::frame(Frame::elsewhere).done());
    if (failed_) return client.connection.send(detail::frame(Frame::refused).text(failure_).done());
    if (hello.looks && hello.member == own_.member)  // it has reached its own server
      return client.connection.send(detail::frame(Frame::elsewhere).done());
    std::string const who = sentence({"rank ", hello.rank, " (", in_words(hello.member), ")"});
    if (hello.world != own_.world)
      return refuse_with(client, {who, " belongs to a world of ", hello.world, " ranks, but rank 0 (",
                                  in_words(own_.member), ") to a world of ", own_.world, "; ", advice_});
    if (!valid)
      return refuse_with(client, {who, " does not exist in a world of ", own_.world, " ranks; ", advice_});
    if (rank->here || hello.looks)
      return refuse_with(client, {"two processes have rank ", hello.rank, ": ",
                                  in_words(hello.looks ? own_.member : rank->member), " and ",
                                  in_words(hello.member), "; ", advice_});
    if (!hello.binary.empty() && !own_.binary.empty() && hello.binary != own_.binary)
      return refuse_with(client, {who, " runs another build of the program than rank 0 (",
                                  in_words(own_.member), "); copy one binary to all hosts"});
    rank->here = true;
    rank->member = hello.member;
    client.rank = hello.rank;
    client.connection.send(detail::frame(Frame::accepted).done());
    if (std::all_of(ranks_.begin(), ranks_.end(), [](Rank const& each) { return each.here; })) {
      complete_ = true;
      // Ranks give no signs of life until all ranks have joined. So the time of silence of every rank starts
      // now.
      for (auto const& each : clients_) each->heard = SteadyClock::now();
      auto joined = detail::frame(Frame::joined);
      for (Rank const& each : ranks_)
        joined.text(each.member.host)
            .number(static_cast<std::uint64_t>(each.member.process))
            .text(each.member.machine);
      tell(joined.done());
    }
  }

  void answer(int number, FrameReader& from) {
    Rank& rank = ranks_[static_cast<std::size_t>(number)];
    switch (static_cast<Frame>(from.type())) {
      case Frame::beat:
        read(from, rank.progress);
        rank.progress.place = from.text();
        break;
      case Frame::gather:
        gather(number, from);
        break;
      case Frame::fault: {
        Fault fault = fault_of(from);
        bool const other = fault.rank >= 0 && fault.rank < own_.world && fault.rank != number;
        if (other) fault.text += last_seen(ranks_[static_cast<std::size_t>(fault.rank)]);
        tell(frame_of(fault));
        break;
      }
      case Frame::leave:
        rank.left = true;
        blame_leavers();
        break;
      default:
        break;
    }
  }

  /// Receives the value that a rank passes to Launch::all_gather. When the values of all ranks are here,
  /// sends all of them to all ranks. Each all_gather has a number. A value with a higher number replaces an
  /// unfinished all_gather, which some ranks have given up.
  void gather(int rank, FrameReader& from) {
    std::uint64_t const number = from.number();
    std::string const what = from.text();
    auto const index = static_cast<std::size_t>(rank);
    if (number <= gathered_ || number < gather_.number) return;
    if (number > gather_.number)
      gather_ = {number, what, std::vector<std::string>(ranks_.size()), std::vector<bool>(ranks_.size()), 0};
    if (gather_.what != what)
      return lose(-1, sentence({"rank ", rank, " wants to ", what, ", but other ranks want to ", gather_.what,
                                "; every rank must run the same program with the same flags"}));
    if (gather_.given[index]) return;
    gather_.given[index] = true;
    gather_.values[index] = from.text();
    if (++gather_.count < ranks_.size()) return blame_leavers();
    gathered_ = number;
    auto all = detail::frame(Frame::gathered);
    all.number(number);
    for (std::string const& value : gather_.values) all.text(value);
    gather_ = {};
    tell(all.done());
  }

  /// Ends the launch if ranks wait in an all_gather for a rank that has left.
  void blame_leavers() {
    if (gather_.count == 0) return;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
      if (ranks_[rank].left && !gather_.given[rank])
        return lose(static_cast<int>(rank), sentence({"it left, but other ranks want to ", gather_.what,
                                                      "; every rank must run the same steps"}));
  }

  void disconnect(int number) {
    Rank& rank = ranks_[static_cast<std::size_t>(number)];
    if (rank.left || rank.lost) return;
    if (!complete_) {
      rank.here = false;
      rank.last_words = sentence({"rank ", number, " (", in_words(rank.member), ") had joined, but ended"});
      return;
    }
    rank.lost = true;
    lose(number, "its process ended" + last_seen(rank));
  }

  void blame_silent(SteadyClock::time_point now) {
    for (auto const& client : clients_) {
      if (client->rank < 0 || now - client->heard < options_.silence) continue;
      Rank& rank = ranks_[static_cast<std::size_t>(client->rank)];
      if (rank.left || rank.lost) continue;
      rank.lost = true;
      lose(client->rank,
           sentence({"it gave no sign of life for ", seconds_text(options_.silence.count()),
                     "; its process is stopped or its host cannot be reached", last_seen(rank)}));
    }
  }

  static std::string last_seen(Rank const& rank) {
    return rank.progress.place.empty() ? std::string() : "; it was last seen " + rank.progress.place;
  }

  void lose(int rank, std::string const& text) { tell(frame_of({every_communicator, rank, false, text})); }

  void tell(std::string const& frame) {
    for (auto const& client : clients_)
      if (client->rank >= 0) client->connection.send(frame);
  }

  void tell_state() {
    auto state = frame(Frame::state);
    for (Rank const& rank : ranks_) write(rank.progress, state);
    tell(state.done());
  }

  /// Ends the launch if ranks are missing. Rank 0, the process of this server, is never missing.
  void refuse_missing() {
    std::vector<int> missing;
    std::string words;
    for (std::size_t rank = 1; rank < ranks_.size(); ++rank) {
      if (ranks_[rank].here) continue;
      missing.push_back(static_cast<int>(rank));
      if (words.empty() && !ranks_[rank].last_words.empty()) words = "; " + ranks_[rank].last_words;
    }
    if (missing.empty()) return;
    fail(sentence({ranks_text(missing), " of ", own_.world, " did not join within ",
                   seconds_text(options_.join_timeout.count()), " at rank 0 (", in_words(own_.member), ", ",
                   place_, ")", words, "; ", advice_, or_wait_longer}));
  }

  void refuse_with(Client& client, std::initializer_list<Word> words) {
    std::string const text = sentence(words);
    fail(text);
    client.connection.send(frame(Frame::refused).text(text).done());
  }

  /// Ends a launch that not all ranks have joined yet. Sends the error message `text` to the ranks that have
  /// joined.
  void fail(std::string const& text) {
    if (complete_) return;  // a process that comes late must not end a launch that runs
    failed_ = true;
    failure_ = text;
    tell(frame(Frame::refused).text(text).done());
  }

  Descriptor listener_;
  Hello const own_;
  std::string const place_;
  std::string const advice_;
  LaunchOptions const options_;
  std::vector<Rank> ranks_;
  std::vector<std::unique_ptr<Client>> clients_;
  Gather gather_;
  std::uint64_t gathered_ = 0;
  bool complete_ = false;
  bool failed_ = false;
  std::string failure_;
  SteadyClock::time_point const deadline_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace detail
}  // namespace comm
}  // namespace v0
}  // namespace tessera
