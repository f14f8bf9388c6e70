// SPDX-License-Identifier: Apache-2.0
// The tables of Xids, of the driver's recovery actions and of the NVLink 5 units behind Xid 144-150:
// data/*.csv, compiled in. A file of the same format replaces rows with the same id, or adds rows. Its header
// names the table.
// Threads: values. Errors: kInvalidArgument naming file, line and column of the first error; the tables stay
// as they were then.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "libckpt/base/result.h"

namespace ckpt::health {

// The action for a process: none, a live move, or a restore from its image.
enum class Outcome : std::uint8_t { kNone, kLive, kRestore };
[[nodiscard]] std::string_view to_string(Outcome outcome) noexcept;

// Readability of the GPU's memory after the error. "others": the owner's context is lost, others are fine;
// "unless_p2p": readable, but jobs that use NVLink peer to peer are not; "unknown": reading may hang.
enum class Readable : std::uint8_t { kYes, kOthers, kUnlessP2p, kUnknown, kNo };
[[nodiscard]] std::string_view to_string(Readable readable) noexcept;

// NVIDIA's immediate action, normalised.
enum class Remedy : std::uint8_t {
  kNone,
  kRestartApp,
  kDrainThenReset,
  kResetGpu,
  kRebootNode,
  kRestartVm,
  kContactSupport,
  kCheckMechanicals,
  kUpdateSw,
  kCheckUvm,
  kDecodeNvlink5,
  kFollowXid154,
};
[[nodiscard]] std::string_view to_string(Remedy remedy) noexcept;

struct XidRow {
  std::uint32_t xid = 0;
  std::string name;
  std::string cause;
  Readable memory_readable = Readable::kUnknown;
  Remedy action = Remedy::kNone;
  Outcome evacuation = Outcome::kNone;
  std::string source;
};

// NVML field 230, Xid 154.
struct RecoveryRow {
  std::uint32_t value = 0;
  std::string name;
  std::string texts;  // as Xid 154 words it, alternatives separated by |
  Outcome evacuation = Outcome::kNone;
  Readable memory_readable = Readable::kYes;
  std::string meaning;
};

// A pattern of 32 bits: '0', '1', '-' for either.
struct BitPattern {
  std::uint32_t mask = 0;
  std::uint32_t value = 0;
  [[nodiscard]] bool matches(std::uint32_t word) const noexcept { return (word & mask) == value; }
};

enum class LinkSeverity : std::uint8_t { kNonFatal, kLinkFatal, kFatal };
[[nodiscard]] std::string_view to_string(LinkSeverity severity) noexcept;

struct Nvlink5Row {
  std::uint32_t xid = 0;
  std::string unit;    // alternatives separated by /
  BitPattern info_v1;  // drivers before R575
  BitPattern info_v2;  // and since
  std::uint32_t error_status = 0;
  std::string immediate;  // NVIDIA's text
  LinkSeverity severity = LinkSeverity::kNonFatal;
};

class XidTable {
 public:
  // Returns the rows that are compiled in.
  static XidTable built_in();

  // `text` of a file (`source` names it in errors): a table of Xids or of recovery actions.
  Result<void> override_with(std::string_view text, std::string_view source);
  // The file itself.
  Result<void> override_with_file(const std::string& path);

  // Null: not known.
  [[nodiscard]] const XidRow* xid(std::uint32_t code) const;
  [[nodiscard]] const RecoveryRow* recovery(std::uint32_t value) const;
  [[nodiscard]] const std::map<std::uint32_t, XidRow>& xids() const noexcept { return xids_; }
  [[nodiscard]] const std::map<std::uint32_t, RecoveryRow>& recoveries() const noexcept {
    return recoveries_;
  }
  [[nodiscard]] const std::vector<Nvlink5Row>& nvlink5() const noexcept { return nvlink5_; }
  // The file that an overridden row is from; empty: compiled in.
  [[nodiscard]] std::string origin_of_xid(std::uint32_t code) const;

 private:
  XidTable() = default;
  std::map<std::uint32_t, XidRow> xids_;
  std::map<std::uint32_t, RecoveryRow> recoveries_;
  std::vector<Nvlink5Row> nvlink5_;
  std::map<std::uint32_t, std::string> xid_origins_;
};

}  // namespace ckpt::health
