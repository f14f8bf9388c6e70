// SPDX-License-Identifier: Apache-2.0
#include "coordinator/report.h"

#include <algorithm>
#include <array>

namespace ckpt::coordinator {
namespace {

constexpr double kNanosPerMs = 1e6;

double span_ms(std::int64_t from, std::int64_t to) {
  return static_cast<double>(to - from) / kNanosPerMs;
}

}  // namespace

std::optional<Downtime> compute_downtime(const wire::SourceReport& source, const wire::TargetReport& target) {
  std::array<std::int64_t, 7> points{source.barrier_entered_ns,
                                     source.paused_ns,
                                     source.last_ack_ns,
                                     target.verified_ns - source.clock_offset_ns,
                                     target.committed_ns - source.clock_offset_ns,
                                     target.resume_sent_ns - source.clock_offset_ns,
                                     target.resumed_ns - source.clock_offset_ns};
  const bool reached = source.barrier_entered_ns != 0 && source.paused_ns != 0 && source.last_ack_ns != 0 &&
                       target.verified_ns != 0 && target.committed_ns != 0 && target.resume_sent_ns != 0 &&
                       target.resumed_ns != 0;
  if (!reached) return std::nullopt;
  const std::int64_t first = points.front();
  const std::int64_t last = std::max(first, points.back());
  for (std::size_t i = 1; i < points.size(); ++i) points[i] = std::clamp(points[i], points[i - 1], last);
  points.back() = last;
  Downtime downtime;
  downtime.quiesce = span_ms(points[0], points[1]);
  downtime.final_copy = span_ms(points[1], points[2]);
  downtime.verify = span_ms(points[2], points[3]);
  downtime.commit = span_ms(points[3], points[4]);
  downtime.restore = span_ms(points[4], points[5]);
  downtime.resume = span_ms(points[5], points[6]);
  return downtime;
}

std::optional<Bound> compute_bound(const wire::SourceReport& source, const Downtime& downtime) {
  const std::uint64_t scan_rate = source.scan_bytes_per_second;
  if (scan_rate == 0 || source.link_bytes_per_second == 0) return std::nullopt;
  const double scan_ms = 1e3 * static_cast<double>(source.state_bytes) / static_cast<double>(scan_rate);
  const double link_ms =
      1e3 * static_cast<double>(source.final_bytes) / static_cast<double>(source.link_bytes_per_second);
  const double resume = downtime.restore + downtime.resume;
  struct Term {
    std::string_view name;
    double ms;
  };
  const std::array<Term, 4> terms{{{"quiesce", downtime.quiesce},
                                   scan_ms >= link_ms ? Term{"scan", scan_ms} : Term{"link", link_ms},
                                   {"commit", downtime.commit},
                                   {"resume", resume}}};
  Bound bound;
  double largest = -1;
  for (const Term& term : terms) {
    bound.ms += term.ms;
    if (term.ms > largest) {
      largest = term.ms;
      bound.by = term.name;
    }
  }
  return bound;
}

}  // namespace ckpt::coordinator
