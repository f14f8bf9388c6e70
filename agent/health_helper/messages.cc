// SPDX-License-Identifier: Apache-2.0
#include "agent/health_helper/messages.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace ckpt::agent::nvml_watch {
namespace {

static_assert(std::has_unique_object_representations_v<Report>, "no padding: it would carry our memory");
constexpr std::uint32_t kAllFlags =
    kLost | kRecoveryKnown | kRemapPending | kRemapFailed | kVolatileKnown | kAggregateKnown | kRowsKnown;

}  // namespace

Result<Report> parse_report(std::span<const std::byte> bytes) {
  Report report;
  if (bytes.size() != sizeof report)
    return Error(ErrorCode::kProtocol, "A packet of gpumigrate-health has " + std::to_string(bytes.size()) +
                                           " bytes instead of " + std::to_string(sizeof report));
  std::memcpy(&report, bytes.data(), sizeof report);
  if (report.magic != kMagic || report.version != kVersion)
    return Error(ErrorCode::kProtocol, "A packet of gpumigrate-health is of another version");
  const bool known = report.kind >= Kind::kGpu && report.kind <= Kind::kFailed;
  if (!known || report.gpu >= kMaxGpus || report.xid > kMaxXid || (report.flags & ~kAllFlags) != 0 ||
      report.text_bytes > kMaxText)
    return Error(ErrorCode::kProtocol, "A packet of gpumigrate-health is out of range");
  return report;
}

void set_text(Report& report, std::string_view text) {
  report.text_bytes = static_cast<std::uint32_t>(std::min(text.size(), kMaxText));
  text.copy(report.text.data(), report.text_bytes);
}

std::string text_of(const Report& report) {
  return std::string(report.text.data(), report.text_bytes);
}

GpuName gpu_name(const Report& report) {
  const std::string text = text_of(report);
  GpuName name;
  const std::size_t first = std::min(text.find(' '), text.size());
  const std::size_t second = std::min(text.find(' ', std::min(first + 1, text.size())), text.size());
  name.uuid = text.substr(0, first);
  if (first < text.size()) name.bus_id = text.substr(first + 1, second - first - 1);
  if (second < text.size()) name.model = text.substr(second + 1);
  return name;
}

}  // namespace ckpt::agent::nvml_watch
