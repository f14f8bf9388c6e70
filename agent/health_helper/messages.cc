// SPDX-License-Identifier: Apache-2.0
#include "agent/health_helper/messages.h"

#include <algorithm>

namespace ckpt::agent::nvml_watch {
namespace {

constexpr std::uint32_t kAllFlags =
    kLost | kRecoveryKnown | kRemapPending | kRemapFailed | kVolatileKnown | kAggregateKnown | kRowsKnown;

}  // namespace

Result<Report> parse_report(std::span<const std::byte> bytes) {
  if (bytes.size() > kMaxReportBytes)
    return Error(ErrorCode::kProtocol, "A packet of gpumigrate-health is too long");
  CKPT_TRY(report, wire::decode<Report>(bytes));
  if (report.gpu >= kMaxGpus || report.xid > kMaxXid || (report.flags & ~kAllFlags) != 0 ||
      report.text.size() > kMaxText)
    return Error(ErrorCode::kProtocol, "A packet of gpumigrate-health has a value out of range");
  return report;
}

void set_text(Report& report, std::string_view text) {
  report.text = text.substr(0, kMaxText);
}

GpuName gpu_name(const Report& report) {
  const std::string& text = report.text;
  GpuName name;
  const std::size_t first = std::min(text.find(' '), text.size());
  const std::size_t second = std::min(text.find(' ', std::min(first + 1, text.size())), text.size());
  name.uuid = text.substr(0, first);
  if (first < text.size()) name.bus_id = text.substr(first + 1, second - first - 1);
  if (second < text.size()) name.model = text.substr(second + 1);
  return name;
}

}  // namespace ckpt::agent::nvml_watch
