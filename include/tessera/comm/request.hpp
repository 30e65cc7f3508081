// SPDX-License-Identifier: Apache-2.0
// Describes a collective as data: the move, the ranks that take part, the sizes, and the traffic that it
// counts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "tessera/config.hpp"
#include "tessera/core/dtype.hpp"
#include "tessera/core/error.hpp"

namespace tessera {
inline namespace v0 {
/// The kinds of data transfer between memory tiers or between ranks. A transport runs all moves except `none`
/// and `copy`. A move is not a verb of a schedule: Move::gather brings the values of all ranks to one rank,
/// whereas Verb::gather brings a unit's full weights to the device.
enum class Move : std::uint8_t {
  none,            ///< transfers nothing
  copy,            ///< copies values to another buffer of this rank
  all_gather,      ///< brings each rank's part to all ranks
  reduce_scatter,  ///< sums over ranks, and gives each rank a part of the sum
  all_reduce,      ///< sums over ranks, and gives each rank the whole sum
  all_to_all,      ///< brings one part of each rank's values to every rank
  gather,          ///< brings each rank's values to the root
  broadcast,       ///< brings the root's values to all ranks
  send,            ///< sends values to one rank, which calls receive
  receive,         ///< receives values from one rank, which calls send
  barrier          ///< transfers nothing: each rank waits until all have arrived
};

constexpr std::string_view name_of(Move move) {
  constexpr std::string_view names[] = {"none",       "copy",       "all_gather", "reduce_scatter",
                                        "all_reduce", "all_to_all", "gather",     "broadcast",
                                        "send",       "receive",    "barrier"};
  return names[static_cast<std::size_t>(move)];
}

namespace comm {

/// Names the caller of a collective: a verb of the schedule, the unit and the micro-batch. Error texts
/// contain these names, and ranks compare them to check that they run the same collective. The strings must
/// live until the call returns. The first 31 characters of `operation` and the first 63 of `unit` count.
struct CollectiveId {
  char const* operation = "";
  char const* unit = "";
  std::int64_t micro_batch = -1;  ///< -1: none
};

/// The ranks that take part in a collective: `count` ranks, from `first` on, with a distance of `stride`.
/// Only these ranks make the call, all of them with the same group; other groups make progress independently.
/// Collectives on different channels may overlap. `Transport::over` opens the communicator of a group and
/// channel.
struct ProcessGroup {
  int first = 0;
  int stride = 1;
  int count = 0;
  int channel = 0;
  int communicator = 0;  ///< the transport's number of the communicator; 0: all ranks, on channel 0

  TESSERA_HOST_DEVICE constexpr int rank(int index) const { return first + index * stride; }
  constexpr int index_of(int rank) const { return (rank - first) / stride; }
  constexpr bool contains(int rank) const {
    return rank >= first && (rank - first) % stride == 0 && (rank - first) / stride < count;
  }
  /// Returns whether both have the same ranks and channel.
  constexpr bool same(ProcessGroup const& other) const {
    return first == other.first && count == other.count && channel == other.channel &&
           (stride == other.stride || count == 1);
  }
};

/// Describes a group in words: "ranks 0, 2, 4 on channel 1".
inline std::string describe(ProcessGroup const& group) {
  std::string text = group.count == 1 ? "rank " : "ranks ";
  for (int index = 0; index < group.count && index < 8; ++index)
    text += sentence({index ? ", " : "", group.rank(index)});
  if (group.count > 8) text += sentence({group.count > 9 ? ", ..., " : ", ", group.rank(group.count - 1)});
  return group.channel ? sentence({text, " on channel ", group.channel}) : text;
}

/// One call of a collective, as a transport receives it.
struct Request {
  Move move = Move::none;
  CollectiveId id{};
  std::uint64_t sequence = 0;  ///< the number of this collective in its group, from 1; of a send or receive:
                               ///< the number of the collective before it
  std::int64_t bytes = 0;      ///< size of one piece: per peer, per rank, or the whole buffer
  int root = -1;               ///< index in the group: of the root, or of the other rank of a send or receive
  DType dtype = DType::f32;    ///< the element type of sums
  void* stream = nullptr;      ///< the stream on which a device transport enqueues; null for host memory
  ProcessGroup group{};        ///< the ranks that take part, this one included
  int pieces = 0;  ///< all_to_all: the number of pieces in `send`; rank p receives piece p modulo this
};

/// Describes a request in words: "all_gather of 4096 bytes (write_back h.3, micro-batch 0)".
inline std::string describe(Request const& request) {
  std::string text(name_of(request.move));
  bool const sums = request.move == Move::all_reduce || request.move == Move::reduce_scatter;
  if (sums)
    text += sentence({" of ", request.bytes / static_cast<std::int64_t>(size_of(request.dtype)), " ",
                      name_of(request.dtype), " values"});
  else if (request.move != Move::barrier)
    text += sentence({" of ", request.bytes, " bytes"});
  bool const there = request.move == Move::gather || request.move == Move::send;
  if (request.root >= 0)
    text += sentence({there ? " to rank " : " from rank ", request.group.rank(request.root)});
  std::string who = request.id.operation ? request.id.operation : "";
  if (request.id.unit && *request.id.unit) who += sentence({who.empty() ? "" : " ", request.id.unit});
  if (request.id.micro_batch >= 0)
    who += sentence({who.empty() ? "micro-batch " : ", micro-batch ", request.id.micro_batch});
  return who.empty() ? text : sentence({text, " (", who, ")"});
}

/// The watchdog's word: the move in the lowest byte, then one byte for the communicator, then the sequence
/// number in this communicator. A rank stores it before it enters a collective, so the word names the last
/// collective that the rank has reached. Sequence numbers of different communicators cannot be compared.
constexpr std::uint64_t watch_word(std::uint64_t sequence, Move move, int communicator = 0) {
  return sequence << 16 | (static_cast<std::uint64_t>(communicator) & 0xffu) << 8 |
         static_cast<std::uint64_t>(move);
}
constexpr std::uint64_t sequence_of(std::uint64_t word) { return word >> 16; }
constexpr int communicator_of(std::uint64_t word) { return static_cast<int>(word >> 8 & 0xffu); }
constexpr Move move_of(std::uint64_t word) { return static_cast<Move>(word & 0xffu); }

/// The cost of one rank's collectives since the last reset. `bytes_sent` counts the bytes that this rank
/// sends to other ranks. The count depends on the move, not on the algorithm of the transport (W: number of
/// ranks, n: bytes of the buffer):
///   all_to_all      (W-1) * piece         all_gather      (W-1) * shard
///   reduce_scatter  (W-1) * shard         gather          shard, 0 on the root
///   broadcast       (W-1) * n on the root, 0 on other ranks
///   all_reduce      2 * (W-1) * ceil(count / W) elements: a reduce-scatter and an all-gather of padded
///                   slices
///   send            n                     receive, barrier  0
/// A group of collectives (Transport::begin_group) counts as one of `calls`. `waiting` is the part of
/// `seconds` before the slowest rank arrived. For transports that only enqueue work, `seconds` is the
/// duration of the calls.
struct Traffic {
  std::int64_t bytes_sent = 0;
  std::int64_t collectives = 0;
  double seconds = 0;
  double waiting = 0;
  std::int64_t calls = 0;
};

}  // namespace comm
}  // namespace v0
}  // namespace tessera
