// SPDX-License-Identifier: Apache-2.0
#include "libckpt/protocol/wire/node_messages.h"

#include <array>
#include <utility>

namespace ckpt::wire {

std::string_view to_string(JobPhase phase) noexcept {
  switch (phase) {
    case JobPhase::kInvalid:
      return "invalid";
    case JobPhase::kStarting:
      return "starting";
    case JobPhase::kRunning:
      return "running";
    case JobPhase::kStandby:
      return "standby";
    case JobPhase::kPaused:
      return "paused";
    case JobPhase::kExited:
      return "exited";
    case JobPhase::kMoved:
      return "moved";
  }
  return "unknown";
}

namespace {

constexpr std::array<std::pair<LaneTransport, std::string_view>, 3> kLaneTransports{
    {{LaneTransport::kTls, "tls"},
     {LaneTransport::kUcxTrusted, "ucx-trusted"},
     {LaneTransport::kRdmaTrusted, "rdma-trusted"}}};

}  // namespace

std::string_view to_string(LaneTransport transport) noexcept {
  for (const auto& [known, text] : kLaneTransports)
    if (known == transport) return text;
  return "unknown";
}

std::optional<LaneTransport> parse_lane_transport(std::string_view text) noexcept {
  for (const auto& [known, its_text] : kLaneTransports)
    if (its_text == text) return known;
  return std::nullopt;
}

std::vector<std::string> DataNetwork::addresses() const {
  std::vector<std::string> all{address};
  for (const std::string& next : more_addresses)
    if (all.size() < kMaxAddresses) all.push_back(next);
  return all;
}

}  // namespace ckpt::wire
