// SPDX-License-Identifier: Apache-2.0
// What ranks ask a transport for, as data, and what that cost.
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
/// How values are carried, between tiers or between ranks. A transport runs all of these but `none` and
/// `copy`.
enum class Move : std::uint8_t {
  none,            ///< nothing is carried
  copy,            ///< to another buffer of this rank
  all_gather,      ///< each rank's part to all ranks
  reduce_scatter,  ///< sums over ranks; each rank gets a part
  all_reduce,      ///< sums over ranks; each rank gets all of them
  all_to_all,      ///< each rank's summands of a part to the rank of that part
  gather,          ///< each rank's values to the root
  broadcast,       ///< the root's values to all ranks
  send,            ///< to one rank, which posts a receive
  receive,         ///< from one rank, which posts a send
  barrier          ///< no values: each rank waits until all have arrived
};

constexpr std::string_view name_of(Move move) {
  constexpr std::string_view names[] = {"none",       "copy",       "all_gather", "reduce_scatter",
                                        "all_reduce", "all_to_all", "gather",     "broadcast",
                                        "send",       "receive",    "barrier"};
  return names[static_cast<std::size_t>(move)];
}

namespace comm {

/// Who asks: a schedule verb, the unit and the micro-batch, for error texts and for the check that all ranks
/// ask for the same thing. The strings must live until the call returns; the first 31 and 63 characters
/// count.
struct CollectiveId {
  char const* operation = "";
  char const* unit = "";
  std::int64_t micro_batch = -1;  ///< -1: none
};

/// The ranks among which a collective moves values: `count` of them, `stride` apart from `first` on. All
/// ranks of the world call it together, each with the group it is in. A channel is what travels apart from
/// the others; `Transport::over` opens the way of a group and channel.
struct Peers {
  int first = 0;
  int stride = 1;
  int count = 0;
  int channel = 0;
  int way = 0;  ///< the transport's number for it; 0: all ranks, in channel 0

  TESSERA_HOST_DEVICE constexpr int rank(int index) const { return first + index * stride; }
  constexpr int index_of(int rank) const { return (rank - first) / stride; }
};

/// One collective as a transport sees it.
struct Request {
  Move move = Move::none;
  CollectiveId id{};
  std::uint64_t sequence = 0;  ///< this rank's count of collectives, from 1
  std::int64_t bytes = 0;      ///< one piece: per peer, per rank, or the whole buffer
  int root = -1;               ///< gather and broadcast, and the other rank of a send: its index in the group
  DType dtype = DType::f32;    ///< reductions
  void* stream = nullptr;      ///< where a device transport enqueues; null for host memory
  Peers peers{};               ///< the others of this rank's group, itself among them
  int pieces = 0;              ///< all_to_all: how many `send` holds; rank p gets piece p modulo that
};

/// "all_gather of 4096 bytes (write_back h.3, micro-batch 0)".
inline std::string describe(Request const& request) {
  using v0::detail::sentence;
  std::string text(name_of(request.move));
  bool const sums = request.move == Move::all_reduce || request.move == Move::reduce_scatter;
  if (sums)
    text += sentence({" of ", request.bytes / static_cast<std::int64_t>(size_of(request.dtype)), " ",
                      name_of(request.dtype), " values"});
  else if (request.move != Move::barrier)
    text += sentence({" of ", request.bytes, " bytes"});
  bool const there = request.move == Move::gather || request.move == Move::send;
  if (request.root >= 0)
    text += sentence({there ? " to rank " : " from rank ", request.peers.rank(request.root)});
  std::string who = request.id.operation ? request.id.operation : "";
  if (request.id.unit && *request.id.unit) who += sentence({who.empty() ? "" : " ", request.id.unit});
  if (request.id.micro_batch >= 0)
    who += sentence({who.empty() ? "micro-batch " : ", micro-batch ", request.id.micro_batch});
  return who.empty() ? text : sentence({text, " (", who, ")"});
}

/// The watchdog's word: the sequence number above, the move in the lowest byte. A rank stores
/// it before it enters a collective, so the word names the last collective that the rank reached.
constexpr std::uint64_t watch_word(std::uint64_t sequence, Move move) {
  return sequence << 8 | static_cast<std::uint64_t>(move);
}
constexpr std::uint64_t sequence_of(std::uint64_t word) { return word >> 8; }
constexpr Move move_of(std::uint64_t word) { return static_cast<Move>(word & 0xffu); }

/// What one rank's collectives cost since the last reset. `bytes_sent` counts what this rank hands to other
/// ranks:
///   all_to_all      (W-1) * piece         all_gather      (W-1) * shard
///   reduce_scatter  (W-1) * shard         gather          shard, 0 on the root
///   broadcast       (W-1) * n on the root, 0 elsewhere
///   all_reduce      2 * (W-1) * ceil(count / W) elements: a reduce-scatter and an all-gather of padded
///   slices
///   send            n               receive, barrier  0
/// whatever the transport really does. Those of a group are one of `calls`. `waiting` is the part of
/// `seconds` spent until the slowest rank arrived; transports that only enqueue report the seconds of the
/// calls.
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
