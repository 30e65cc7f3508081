// SPDX-License-Identifier: Apache-2.0
// Provides the description of a collective as data: Move, the kind of transfer; ProcessGroup, the ranks that
// take part; Request, one call. Also provides Traffic, the cost of collectives.
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

/// Says for which entry of a schedule a collective is called: `operation` is the verb of the entry, and
/// `unit` and `micro_batch` are its unit and its micro-batch. Error messages contain them. Ranks also compare
/// them, to check that all ranks run the same collective. The strings must live until the call returns. Only
/// the first 31 characters of `operation` and the first 63 of `unit` are used.
struct CollectiveId {
  char const* operation = "";
  char const* unit = "";
  std::int64_t micro_batch = -1;  ///< -1: none
};

/// The ranks that take part in a collective: the `count` ranks `first`, `first + stride`, `first + 2 *
/// stride` and so on. All ranks of the group must call the collective with the same group, and no other rank
/// calls it. Different groups need not wait for each other. `channel` distinguishes several communicators of
/// the same ranks; collectives on different channels may overlap. `Transport::over` opens the communicator of
/// a group and a channel.
struct ProcessGroup {
  int first = 0;
  int stride = 1;
  int count = 0;
  int channel = 0;
  int communicator = 0;  ///< the number that Transport::over gives it; 0: all ranks, on channel 0

  TESSERA_HOST_DEVICE constexpr int rank(int index) const { return first + index * stride; }
  constexpr int index_of(int rank) const { return (rank - first) / stride; }
  constexpr bool contains(int rank) const {
    return rank >= first && (rank - first) % stride == 0 && (rank - first) / stride < count;
  }
  /// Returns whether this group and `other` have the same ranks and the same channel.
  constexpr bool same(ProcessGroup const& other) const {
    return first == other.first && count == other.count && channel == other.channel &&
           (stride == other.stride || count == 1);
  }
};

/// Returns a description of a group, such as "ranks 0, 2, 4 on channel 1".
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
  std::uint64_t sequence = 0;  ///< counts the collectives of the group, from 1; a send or receive has
                               ///< the number of the collective before it
  std::int64_t bytes = 0;      ///< the size of one piece of a buffer (Transport::run)
  int root = -1;               ///< index in the group: of the root, or of the other rank of a send or receive
  DType dtype = DType::f32;    ///< the element type of sums
  void* stream = nullptr;      ///< the stream on which a device transport enqueues; null for host memory
  ProcessGroup group{};        ///< the ranks that take part, this one included
  int pieces = 0;              ///< only for all_to_all: the number of pieces in `send`
};

/// Returns a description of a request, such as "all_gather of 4096 bytes (write_back h.3, micro-batch 0)".
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

/// Returns the watch word of a collective, a number that identifies it. The lowest byte is the move, and the
/// next byte is the communicator. The other bytes are the sequence number of the collective in this
/// communicator. A rank stores the word before it enters the collective. So another thread can read which
/// collective the rank has reached last. Sequence numbers of different communicators cannot be compared.
constexpr std::uint64_t watch_word(std::uint64_t sequence, Move move, int communicator = 0) {
  return sequence << 16 | (static_cast<std::uint64_t>(communicator) & 0xffu) << 8 |
         static_cast<std::uint64_t>(move);
}
constexpr std::uint64_t sequence_of(std::uint64_t word) { return word >> 16; }
constexpr int communicator_of(std::uint64_t word) { return static_cast<int>(word >> 8 & 0xffu); }
constexpr Move move_of(std::uint64_t word) { return static_cast<Move>(word & 0xffu); }

/// The cost of one rank's collectives since the last reset. `bytes_sent` counts the bytes that this rank
/// sends to other ranks. The count depends on the move, not on the algorithm of the transport. In the
/// formulas, W is the number of ranks of the group, n is the size of the buffer in bytes, and piece and shard
/// are the size of the part that belongs to one rank:
///   all_to_all      (W-1) * piece         all_gather      (W-1) * shard
///   reduce_scatter  (W-1) * shard         gather          shard, 0 on the root
///   broadcast       (W-1) * n on the root, 0 on other ranks
///   all_reduce      2 * (W-1) * ceil(count / W) elements: a reduce-scatter and an all-gather of padded
///                   slices
///   send            n                     receive, barrier  0
/// `calls` counts all collectives between Transport::begin_group and end_group as one call. `seconds` is the
/// time of the calls; if the transport only enqueues work, it is the time for enqueueing. `waiting` is the
/// part of `seconds` that this rank waited for slower ranks.
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
