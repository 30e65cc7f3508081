// SPDX-License-Identifier: Apache-2.0
// Implements collective_times.hpp: the model of the times of collectives, and their part of a file of machine
// times.
#include "prediction/collective_times.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>

#include <nlohmann/json.hpp>

#include "tessera/core/error.hpp"
#include "tessera/io/file.hpp"

#include "cli/values.hpp"
#include "prediction/json_fields.hpp"

namespace programs {
using namespace tessera;
namespace cli {
namespace {

using Json = nlohmann::ordered_json;

/// The kinds of collectives whose times a file may have. If a kind was not measured, its time is computed
/// from the first kind of this list that was measured.
constexpr Move kinds[] = {Move::all_gather, Move::reduce_scatter, Move::all_to_all,
                          Move::gather,     Move::all_reduce,     Move::broadcast};

/// Returns the number of steps that a collective needs in a ring of `ranks` ranks.
double steps_of(Move kind, int ranks) {
  if (kind == Move::send || kind == Move::receive) return 1.0;
  return (kind == Move::all_reduce ? 2.0 : 1.0) * (ranks - 1);
}

/// Returns the share of the buffer that the link of one rank carries in each direction.
double traffic_of(Move kind, int ranks) {
  if (kind == Move::broadcast || kind == Move::send || kind == Move::receive) return 1.0;
  return steps_of(kind, ranks) / ranks;
}

/// The line alpha + beta * bytes.
struct Line {
  double alpha, beta;
  double at(double bytes) const { return alpha + beta * bytes; }
};

/// Returns the line through two points of different sizes. If the larger one took less time, which is noise,
/// returns the longer time for all sizes.
Line line_through(TimedCollective const& one, TimedCollective const& other) {
  double const beta = (other.seconds - one.seconds) / (other.bytes - one.bytes);
  if (beta <= 0) return {std::max(one.seconds, other.seconds), 0};
  return {one.seconds - beta * one.bytes, beta};
}

/// Returns the time in seconds of a collective on `bytes` bytes. `points` are the measured times of one kind
/// and one number of ranks, sorted by size. Above the largest measured size, the bandwidth is the bandwidth
/// of the largest point. Sets `alpha` to the latency, the part of the time that does not depend on the size.
double interpolated(std::span<TimedCollective const> points, double bytes, double& alpha) {
  alpha = 0;
  TimedCollective const& largest = points.back();
  if (bytes >= largest.bytes || points.size() == 1)
    return largest.seconds * std::max(1.0, bytes / largest.bytes);
  alpha = std::clamp(line_through(points[0], points[1]).alpha, 0.0, points[0].seconds);
  if (bytes <= points[0].bytes) return alpha + (points[0].seconds - alpha) * bytes / points[0].bytes;
  std::size_t above = 1;
  while (above + 1 < points.size() && points[above].bytes < bytes) ++above;
  return std::max(alpha, line_through(points[above - 1], points[above]).at(bytes));
}

auto key_of(TimedCollective const& point) { return std::tuple(point.kind, point.ranks, point.bytes); }

}  // namespace

double whole_bytes(Move kind, int ranks, double bytes) {
  bool const in_parts = kind == Move::all_gather || kind == Move::reduce_scatter ||
                        kind == Move::all_to_all || kind == Move::gather;
  return in_parts ? bytes * ranks : bytes;
}

void CollectiveTimes::add(TimedCollective const& point) {
  auto const before = [](TimedCollective const& one, TimedCollective const& other) {
    return key_of(one) < key_of(other);
  };
  points_.insert(std::upper_bound(points_.begin(), points_.end(), point, before), point);
}

Estimate CollectiveTimes::seconds(Move kind, int ranks, double bytes, bool shares) const {
  if (ranks < 2 || bytes <= 0) return {};
  auto const of_kind = [this](Move of) {
    auto const first =
        std::find_if(points_.begin(), points_.end(), [&](auto const& point) { return point.kind == of; });
    auto const last = std::find_if(first, points_.end(), [&](auto const& point) { return point.kind != of; });
    return std::span<TimedCollective const>(first, last);
  };
  Move measured = kind;
  std::span<TimedCollective const> points = of_kind(kind);
  for (std::size_t at = 0; points.empty() && at < std::size(kinds); ++at)
    points = of_kind(measured = kinds[at]);
  // Uses the points of the smallest measured number of ranks that is at least `ranks`. If there is none, uses
  // the points of the largest number of ranks.
  int from = points.back().ranks;
  for (TimedCollective const& point : points)
    if (point.ranks >= ranks) from = std::min(from, point.ranks);
  auto const has_ranks = [from](TimedCollective const& point) { return point.ranks == from; };
  auto const first = std::find_if(points.begin(), points.end(), has_ranks);
  auto const last = std::find_if_not(first, points.end(), has_ranks);
  double alpha = 0;
  double const there = interpolated({first, last}, bytes, alpha);
  double const transfer = (there - alpha) * traffic_of(kind, ranks) / traffic_of(measured, from) *
                          (shares ? static_cast<double>(ranks) / from : 1.0);
  return {alpha * steps_of(kind, ranks) / steps_of(measured, from) + transfer, measured != kind};
}

double Network::seconds(Move kind, int ranks, int on_host, double bytes, double within) const {
  int const hosts = (ranks + on_host - 1) / on_host;
  double const transfer = bytes * traffic_of(kind, ranks) / (bytes_per_s * on_host);
  return std::max(within, transfer) + latency_s * steps_of(kind, hosts);
}

Network network_from(Json const& json) {
  return {.link = json_fields::text_in(json, "link"),
          .source = json_fields::text_in(json, "source"),
          .bytes_per_s = json_fields::number_in(json, "bytes_per_s", 1, 1e15),
          .latency_s = json_fields::number_in(json, "latency_s", 0, 10),
          .error_pct = json_fields::number_in(json, "error_pct", 0, 1000)};
}

Json json_of(Network const& network) {
  return {{"link", network.link},
          {"source", network.source},
          {"bytes_per_s", network.bytes_per_s},
          {"latency_s", network.latency_s},
          {"error_pct", network.error_pct}};
}

std::string text_of(CollectiveTimes const& times) {
  Json head = {{"source", times.source},     {"link", times.link},
               {"scaled", times.scaled},     {"error_pct", times.error_pct},
               {"slowdown", times.slowdown}, {"collective_slowdown", times.collective_slowdown}};
  std::string text = head.dump(-1, ' ', false, Json::error_handler_t::replace);
  text.back() = ',';  // replaces the closing brace; one point per line follows
  text += " \"points\": [";
  char const* between = "\n";
  for (TimedCollective const& point : times.points()) {
    text += between + Json{{"kind", name_of(point.kind)},
                           {"ranks", point.ranks},
                           {"bytes", point.bytes},
                           {"seconds", point.seconds}}
                          .dump();
    between = ",\n";
  }
  return text + "\n]}";
}

CollectiveTimes collectives_from(Json const& json) {
  CollectiveTimes times;
  times.source = json_fields::text_in(json, "source");
  times.link = json_fields::text_in(json, "link");
  times.scaled = json_fields::value_in(json, "scaled", &Json::is_boolean, "true or false").get<bool>();
  times.error_pct = json_fields::number_in(json, "error_pct", 0, 1000);
  times.slowdown = json_fields::number_in(json, "slowdown", 0, 0.9);
  if (json.contains("collective_slowdown"))  // absent in older files
    times.collective_slowdown = json_fields::number_in(json, "collective_slowdown", 0, 0.9);
  Json const& points = json_fields::value_in(json, "points", &Json::is_array, "a list");
  constexpr std::size_t max_points = 20000;
  if (points.empty() || points.size() > max_points)
    throw Error(ErrorKind::data, "'points' is not a list of 1 to " + std::to_string(max_points) + " times");
  std::size_t at = 0;
  try {
    for (; at < points.size(); ++at) {
      TimedCollective point;
      std::string const name = json_fields::text_in(points[at], "kind");
      auto const* const kind =
          std::find_if(std::begin(kinds), std::end(kinds), [&](Move of) { return name_of(of) == name; });
      if (kind == std::end(kinds)) {
        std::string known;
        for (Move const of : kinds) known += (known.empty() ? "" : ", ") + std::string(name_of(of));
        throw Error(ErrorKind::data,
                    "'kind' is " + in_quotes(files::printable(name)) + ", and not one of " + known);
      }
      point.kind = *kind;
      point.ranks = json_fields::ranks_in(points[at], "ranks", 2);
      point.bytes = json_fields::number_in(points[at], "bytes", 1, 1e18);
      point.seconds = json_fields::number_in(points[at], "seconds", 1e-9, 1e6);
      for (TimedCollective const& other : times.points())
        if (key_of(other) == key_of(point))
          throw Error(ErrorKind::data, "an earlier point has the same kind, ranks and bytes");
      times.add(point);
    }
  } catch (Error const& error) {
    throw Error(ErrorKind::data, "point " + std::to_string(at + 1) + ": " + error.what());
  }
  return times;
}

}  // namespace cli
}  // namespace programs
