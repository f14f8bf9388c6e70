// SPDX-License-Identifier: Apache-2.0
#include "libckpt/health/nvlink5.h"

#include <algorithm>

namespace ckpt::health {
namespace {

// Returns whether one of the alternatives of "A/B" is the unit of the line.
bool names(const std::string& alternatives, const std::string& unit) {
  std::string_view rest = alternatives;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('/'), rest.size());
    if (rest.substr(0, end) == unit) return true;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return false;
}

// Returns whether the row matches the error status. Errors of 144-148 are bits, several of which may be set
// at once. Errors of 149 and 150 are numbers.
bool status_matches(const Nvlink5Row& row, std::uint32_t status) {
  constexpr std::uint32_t kLastOfBits = 148;
  if (row.error_status == status) return true;
  return row.xid <= kLastOfBits && row.error_status != 0 && (status & row.error_status) == row.error_status;
}

bool matches(const Nvlink5Row& row, std::uint32_t xid, const LinkEvent& event) {
  if (row.xid != xid || !status_matches(row, event.error_status)) return false;
  return row.info_v1.matches(event.info) || row.info_v2.matches(event.info);
}

std::optional<LinkVerdict> by_its_words(std::uint32_t xid, const LinkEvent& event) {
  constexpr std::uint32_t kNetir = 149;
  LinkVerdict verdict;
  verdict.reason = event.unit + " " + event.severity + " (not in the table)";
  if (event.severity == "Nonfatal" || event.severity == "Non-fatal") return verdict;
  const bool machine = event.unit == "NETIR_MFDE_EVENT";
  if (event.severity == "Fatal") {
    verdict.severity = xid == kNetir && !machine ? LinkSeverity::kLinkFatal : LinkSeverity::kFatal;
    return verdict;
  }
  if (event.severity == "Link Fatal") {
    verdict.severity = LinkSeverity::kLinkFatal;
    return verdict;
  }
  return std::nullopt;
}

}  // namespace

std::optional<LinkVerdict> decode_link(const XidTable& table, std::uint32_t xid, const LinkEvent& event) {
  const bool unit_known =
      std::any_of(table.nvlink5().begin(), table.nvlink5().end(),
                  [&](const Nvlink5Row& row) { return row.xid == xid && names(row.unit, event.unit); });
  const Nvlink5Row* worst = nullptr;
  for (const Nvlink5Row& row : table.nvlink5()) {
    if (!matches(row, xid, event) || (unit_known && !names(row.unit, event.unit))) continue;
    if (worst == nullptr || row.severity > worst->severity) worst = &row;
  }
  if (worst == nullptr) return by_its_words(xid, event);
  LinkVerdict verdict;
  verdict.severity = worst->severity;
  verdict.from_table = true;
  verdict.reason =
      worst->unit + ": " + std::string(to_string(worst->severity)) + ", NVIDIA says " + worst->immediate;
  return verdict;
}

}  // namespace ckpt::health
