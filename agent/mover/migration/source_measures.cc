// SPDX-License-Identifier: Apache-2.0
#include "agent/mover/migration/source_measures.h"

#include <algorithm>

#include "libckpt/datapath/track/read_rate.h"
#include "libckpt/net/control/log.h"

namespace ckpt::mover {
namespace {

constexpr std::uint64_t kReadRateBytes = std::uint64_t{256}
                                         << 20;  // limit for the bytes that are read to measure the read rate

std::uint64_t rate(std::uint64_t bytes, Nanos time) {
  return time <= 0 ? 0
                   : static_cast<std::uint64_t>(static_cast<double>(bytes) * 1e9 / static_cast<double>(time));
}

}  // namespace

Result<void> SourceMeasures::measure_link(engine::Sender& sender) {
  CKPT_TRY(link, sender.measure_link());
  link_rate_ = link;
  return ok();
}

void SourceMeasures::measure_clock(engine::Sender& sender) {
  auto measured = sender.measure_clock();
  if (!measured) return;
  if (!has_clock_ || measured->uncertainty < clock_.uncertainty) clock_ = *measured;
  has_clock_ = true;
}

Result<void> SourceMeasures::measure_memory(const Device& device,
                                            std::shared_ptr<const track::FingerprintParams> params,
                                            std::vector<track::ChunkRange> ranges) {
  if (ranges.empty()) return ok();
  // Long runs come first. A launch over many small runs measures its list and not the memory.
  std::sort(ranges.begin(), ranges.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  const auto measure = [&]() -> Result<std::uint64_t> {
    CKPT_TRY(kernels, track::TrackKernels::create(device, std::move(params)));
    return track::measure_read_rate(*kernels, ranges, kReadRateBytes);
  };
  const auto measured = measure();
  if (measured) {
    scan_rate_ = std::max(scan_rate_, *measured);
    return ok();
  }
  if (measured.error().code() == ErrorCode::kDevice) return measured.error();
  spdlog::warn("the memory's read rate was not measured: {}", measured.error().to_string());
  return ok();
}

void SourceMeasures::count_round(const engine::RoundReport& report) {
  if (report.cut) {
    if (rounds_ > 0) dirty_bytes_ += report.sent_bytes;
    return;
  }
  count(report);
  last_round_time_ = report.end_ns - report.begin_ns;
}

void SourceMeasures::count_final(const engine::RoundReport& report, std::uint64_t host_bytes,
                                 std::uint64_t host_ahead_bytes) {
  count(report);
  final_ = report;
  host_bytes_ = host_bytes;
  host_ahead_bytes_ = host_ahead_bytes;
  if (report.first_copy_ns != 0)
    link_rate_ = std::max(link_rate_, rate(report.wire_bytes, report.end_ns - report.first_copy_ns));
}

// Counts a round. A bound must not use a rate that the move itself has exceeded.
void SourceMeasures::count(const engine::RoundReport& report) {
  ++rounds_;
  state_bytes_ = report.state_bytes;
  if (report.round > 1) dirty_bytes_ += report.dirty_bytes;
  scan_rate_ = std::max(scan_rate_, rate(report.state_bytes, report.scan_ns));
  link_rate_ = std::max(link_rate_, static_cast<std::uint64_t>(report.drain_bytes_per_second));
}

// Returns the time of the verification. The answer itself arrives while the target releases memory and starts
// a process, and the job does not wait for that.
Nanos SourceMeasures::verified_ns(const engine::Verdict& verdict) const {
  if (!has_clock_) return verdict.heard_ns;
  return std::clamp(verdict.compared_ns - clock_.offset, verdict.sent_ns, verdict.heard_ns);
}

wire::mover::SourceCounters SourceMeasures::counters(const engine::RoundProgress& progress,
                                                     Nanos estimate) const {
  wire::mover::SourceCounters counters;
  counters.rounds = rounds_;
  counters.state_bytes = state_bytes_;
  counters.sent_bytes = progress.sent_bytes;
  counters.wire_bytes = progress.wire_bytes;
  counters.dirty_bytes = dirty_bytes_;
  counters.final_bytes = std::min(final_.dirty_bytes, final_.wire_bytes);
  counters.host_bytes = host_bytes_;
  counters.host_ahead_bytes = host_ahead_bytes_;
  counters.resent_chunks = progress.resent_chunks;
  counters.link_bytes_per_second = link_rate_;
  counters.scan_bytes_per_second = scan_rate_;
  counters.scan_ns = final_.scan_ns;
  counters.copy_ns = final_.first_copy_ns == 0 ? 0 : final_.end_ns - final_.first_copy_ns;
  counters.estimate_ns = estimate;
  counters.clock_offset_ns = clock_.offset;
  counters.clock_uncertainty_ns = clock_.uncertainty;
  return counters;
}

}  // namespace ckpt::mover
