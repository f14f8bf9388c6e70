// SPDX-License-Identifier: Apache-2.0
#include "libckpt/protocol/gang/gang_types.h"

#include <algorithm>

namespace ckpt::gang {
namespace {

constexpr std::size_t kMaxRanks = 1024;

}  // namespace

std::string to_text(const Party& party) {
  switch (party.role) {
    case Role::kCoordinator:
      return "C";
    case Role::kSource:
      return "S" + std::to_string(party.rank);
    case Role::kTarget:
      return "T" + std::to_string(party.rank);
    case Role::kBystander:
      return "U" + std::to_string(party.rank);
  }
  return "invalid";
}

std::vector<Party> GangInfo::ranks() const {
  std::vector<Party> all;
  for (const std::uint32_t rank : moved) {
    all.emplace_back(Role::kSource, rank);
    all.emplace_back(Role::kTarget, rank);
  }
  for (const std::uint32_t rank : staying) all.emplace_back(Role::kBystander, rank);
  return all;
}

Result<void> check(const GangInfo& info) {
  const auto bad = [](const char* what) {
    return Error(ErrorCode::kProtocol, std::string("A move of ranks ") + what);
  };
  if (info.migration == 0 || info.gang == 0 || info.base == 0) return bad("without ids");
  std::vector<std::uint32_t> all = info.moved;
  all.insert(all.end(), info.staying.begin(), info.staying.end());
  if (info.moved.empty() || all.size() > kMaxRanks) return bad("with no ranks, or too many");
  if (!std::is_sorted(info.moved.begin(), info.moved.end()) ||
      !std::is_sorted(info.staying.begin(), info.staying.end()))
    return bad("whose ranks are not in order");
  std::sort(all.begin(), all.end());
  if (std::adjacent_find(all.begin(), all.end()) != all.end()) return bad("that names a rank twice");
  return ok();
}

bool is_known(RecordKind kind) noexcept {
  return name_of(Record(GangInfo(), Party(), kind)) != "invalid";
}

std::string_view name_of(const Body& body) noexcept {
  return std::visit(
      [](const auto& what) -> std::string_view {
        using Known = std::decay_t<decltype(what)>;
        return Known::kName;
      },
      body);
}

std::string name_of(const Record& record) {
  switch (record.kind) {
    case RecordKind::kBegun:
      return "BEGUN";
    case RecordKind::kGranted:
      return "GRANTED(n+1)";
    case RecordKind::kReturned:
      return "GRANTED(n+2)";
    case RecordKind::kKept:
      return "KEPT(n+1)";
    case RecordKind::kClosed:
      return record.side == Side::kSource ? "CLOSED(source)" : "CLOSED(target)";
    case RecordKind::kAborted:
      return "ABORTED";
    case RecordKind::kRestored:
      return "RESTORED";
    case RecordKind::kBarrier:
      return "BARRIER";
    case RecordKind::kNever:
      return "NEVER";
    case RecordKind::kResumed:
      return "RESUMED";
    case RecordKind::kReleased:
      return "RELEASED";
    case RecordKind::kReady:
      return "READY";
    case RecordKind::kCommitted:
      return "COMMITTED";
    case RecordKind::kRelinquished:
      return "RELINQUISHED";
    case RecordKind::kHeld:
      return "HELD";
    case RecordKind::kLifted:
      return "LIFTED";
    case RecordKind::kGone:
      return "GONE";
    case RecordKind::kOld:
      return "OLD";
    case RecordKind::kHeldStill:
      return "HELD_STILL";
    case RecordKind::kFenced:
      return "FENCED";
  }
  return "invalid";
}

}  // namespace ckpt::gang
