// SPDX-License-Identifier: Apache-2.0
// Parses the value of --mesh, for example replicate=2,shard=2. A mesh arranges the ranks as a table. The
// ranks in one row of this table hold one copy of the training state together: each rank has one shard of it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "tessera/core/error.hpp"

#include "cli/values.hpp"

namespace programs {
using namespace tessera;
namespace cli {

/// A mesh of ranks: the number of copies of the state (replicas), and the number of shards of each copy. If
/// `shards` is 0, it is the number of ranks divided by `replicas`.
struct Mesh {
  int replicas = 1;
  int shards = 0;

  /// Returns the mesh of `ranks` ranks as text, replicas x shards: "2x2".
  std::string text(std::int64_t ranks) const {
    return std::to_string(replicas) + "x" + std::to_string(ranks / replicas);
  }
  friend bool operator==(Mesh const&, Mesh const&) = default;
};

/// Returns the mesh that `value`, such as "replicate=2,shard=2", describes. "replicate" or "shard" may be
/// missing. For any other text, throws an error that names the flag `flag`.
inline Mesh read_mesh(std::string const& flag, std::string const& value) {
  Mesh mesh;
  for (std::size_t begin = 0; begin <= value.size();) {
    std::size_t const end = std::min(value.find(',', begin), value.size());
    std::string const part = value.substr(begin, end - begin);
    std::size_t const equals = part.find('=');
    std::string const axis = choice(flag, part.substr(0, equals), {"replicate", "shard"});
    if (equals == std::string::npos)
      refuse(flag + ": " + in_quotes(part) + " has no number of ranks; write replicate=2,shard=2");
    int const count = static_cast<int>(parse_integer(flag + " " + axis, part.substr(equals + 1), 1, 1 << 20));
    (axis == "shard" ? mesh.shards : mesh.replicas) = count;
    begin = end + 1;
  }
  return mesh;
}

/// Throws if the mesh does not match the number of ranks.
inline void check_mesh(Mesh const& mesh, std::int64_t ranks) {
  if (ranks % mesh.replicas == 0 && (mesh.shards == 0 || mesh.replicas * std::int64_t{mesh.shards} == ranks))
    return;
  throw Error(ErrorKind::config,
              "--mesh replicate=" + std::to_string(mesh.replicas) +
                  (mesh.shards > 0 ? ",shard=" + std::to_string(mesh.shards) : std::string()) + " is not " +
                  std::to_string(ranks) + " ranks; replicate x shard must be the number of ranks");
}

}  // namespace cli
}  // namespace programs
