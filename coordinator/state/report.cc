// SPDX-License-Identifier: Apache-2.0
#include "coordinator/state/report.h"
#include "libckpt/base/clock.h"

#include <algorithm>
#include <array>

namespace ckpt::coordinator {
namespace {

double span_ms(std::int64_t from, std::int64_t to) {
  return static_cast<double>(to - from) / kNanosPerMs;
}

double time_ms(double bytes, std::uint64_t rate) {
  return rate == 0 ? 0 : 1e3 * bytes / static_cast<double>(rate);
}

}  // namespace

std::optional<Downtime> compute_downtime(const wire::SourceReport& source, const wire::TargetReport& target) {
  const bool reached = source.barrier_entered_ns != 0 && source.paused_ns != 0 && source.last_ack_ns != 0 &&
                       target.verified_ns != 0 && target.committed_ns != 0 && target.resume_sent_ns != 0 &&
                       target.resumed_ns != 0;
  if (!reached) return std::nullopt;
  const std::int64_t offset = source.clock_offset_ns;
  const bool dumped = source.host_saved_ns != 0;
  Downtime downtime;
  struct Point {
    std::int64_t at;  // the time of the point; 0: not in this mode
    double Downtime::*piece;
  };
  // The points are in the order of the critical path. With a dump, the context is saved before the final
  // round. Without a dump, saving and copying run at the same time. Then only the excess of the saving over
  // the copying counts.
  const std::array<Point, 13> points{
      {{source.paused_ns, &Downtime::quiesce},
       {dumped ? source.context_saved_ns : 0, &Downtime::context},
       {source.host_saved_ns, &Downtime::host},
       {source.last_ack_ns, &Downtime::final_copy},
       {dumped ? 0 : source.context_saved_ns, &Downtime::context},
       {target.verified_ns - offset, &Downtime::verify},
       {target.groups_made_ns == 0 ? 0 : target.groups_made_ns - offset, &Downtime::communicators},
       {target.committed_ns - offset, &Downtime::commit},
       {target.host_restored_ns == 0 ? 0 : target.host_restored_ns - offset, &Downtime::host},
       {target.context_restored_ns == 0 ? 0 : target.context_restored_ns - offset, &Downtime::context},
       {target.memory_filled_ns == 0 ? 0 : target.memory_filled_ns - offset, &Downtime::fill},
       {target.resume_sent_ns - offset, &Downtime::restore},
       {target.resumed_ns - offset, &Downtime::resume}}};
  std::int64_t before = source.barrier_entered_ns;
  const std::int64_t last = std::max(before, points.back().at);
  for (const Point& point : points) {
    if (point.at == 0) continue;
    const std::int64_t at = &point == &points.back() ? last : std::clamp(point.at, before, last);
    downtime.*point.piece += span_ms(before, at);
    before = at;
  }
  return downtime;
}

std::optional<double> to_barrier_ms(const Migration& rank) {
  if (!rank.source_report) return std::nullopt;
  const wire::SourceReport& report = *rank.source_report;
  if (report.stop_ordered_ns == 0 || report.barrier_entered_ns == 0) return std::nullopt;
  return std::max(0.0, span_ms(report.stop_ordered_ns, report.barrier_entered_ns));
}

std::optional<wire::PauseFacts> pause_of(const wire::SourceReport& source, const Downtime& downtime) {
  using wire::PauseTerm;
  if (!source.estimate) return std::nullopt;
  const auto ns = [](double ms) { return static_cast<std::int64_t>(ms * kNanosPerMs); };
  const auto span = [](std::int64_t from, std::int64_t to) { return std::max<std::int64_t>(0, to - from); };
  wire::PauseFacts pause;
  pause.kind = source.estimate->kind;
  pause.bytes = source.estimate->bytes;
  pause.ns[PauseTerm::kQuiesce] = ns(downtime.quiesce);
  pause.ns[PauseTerm::kVerify] = ns(downtime.verify);
  pause.ns[PauseTerm::kCommit] = ns(downtime.commit);
  pause.ns[PauseTerm::kFill] = ns(downtime.fill);
  pause.ns[PauseTerm::kMap] = ns(downtime.restore);
  pause.ns[PauseTerm::kResume] = ns(downtime.resume);
  std::int64_t restored = ns(downtime.context);
  if (source.context_saved_ns != 0) {
    // The whole time of saving counts here. The breakdown assigns a part of it to the final copy, because
    // saving and copying ran at the same time.
    const std::int64_t saved = span(source.paused_ns, source.context_saved_ns);
    pause.ns[PauseTerm::kContextSave] = saved;
    restored -= source.host_saved_ns != 0 ? saved : span(source.last_ack_ns, source.context_saved_ns);
  }
  pause.ns[PauseTerm::kContextRestore] = std::max<std::int64_t>(0, restored);
  if (source.host_saved_ns != 0) {
    const std::int64_t dumped = span(source.context_saved_ns, source.host_saved_ns);
    pause.ns[PauseTerm::kDump] = dumped;
    pause.ns[PauseTerm::kHostRestore] = std::max<std::int64_t>(0, ns(downtime.host) - dumped);
    pause.ns[PauseTerm::kFinal] = ns(downtime.final_copy);
  }
  return pause;
}

Downtime breakdown_of(const wire::PauseFacts& pause) {
  using wire::PauseTerm;
  const auto ms = [&pause](PauseTerm term) { return static_cast<double>(pause.ns[term]) / kNanosPerMs; };
  Downtime out;
  out.quiesce = ms(PauseTerm::kQuiesce);
  out.final_copy = ms(PauseTerm::kFinal);
  out.verify = ms(PauseTerm::kVerify);
  out.communicators = ms(PauseTerm::kCommunicators);
  out.commit = ms(PauseTerm::kCommit);
  out.context = ms(PauseTerm::kContextSave) + ms(PauseTerm::kContextRestore);
  out.host = ms(PauseTerm::kDump) + ms(PauseTerm::kHostRestore);
  out.fill = ms(PauseTerm::kFill);
  out.restore = ms(PauseTerm::kMap);
  out.resume = ms(PauseTerm::kResume);
  return out;
}

std::optional<Bound> compute_bound(const wire::SourceReport& source, const wire::TargetReport& target,
                                   const Downtime& downtime) {
  const std::uint64_t scan_rate = source.scan_bytes_per_second;
  if (scan_rate == 0 || source.link_bytes_per_second == 0) return std::nullopt;
  struct Term {
    std::string_view name;
    double ms;
  };
  const double host = downtime.host > 0 ? static_cast<double>(source.host_bytes) : 0;
  const std::array<Term, 3> beside{
      {{"scan", time_ms(static_cast<double>(source.state_bytes), scan_rate)},
       {"link", time_ms(static_cast<double>(source.final_bytes) + static_cast<double>(source.host_bytes),
                        source.link_bytes_per_second)},
       {"host_read", time_ms(host, source.host_read_bytes_per_second)}}};
  const Term& copy = *std::max_element(beside.begin(), beside.end(),
                                       [](const Term& one, const Term& other) { return one.ms < other.ms; });
  const std::array<Term, 5> terms{{{"quiesce", downtime.quiesce},
                                   copy,
                                   {"commit", downtime.commit},
                                   {"host_write", time_ms(host, target.host_write_bytes_per_second)},
                                   {"resume", downtime.restore + downtime.resume}}};
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
