// SPDX-License-Identifier: Apache-2.0
// The tables of Xids, of the driver's recovery actions and of the NVLink 5 units of Xids 144-150. They are
// data/*.csv, compiled in. A file of the same format replaces rows with the same id, or adds rows. Its header
// names the table.
// Threads: plain values. Errors: kInvalidArgument with file, line and column of the first error; the tables
// are unchanged then.
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

// Whether the GPU's memory can be read after the error. "others": the owner's context is lost, but other
// contexts are intact. "unless_p2p": readable, except for jobs that use NVLink peer to peer. "unknown":
// reading may hang.
enum class Readable : std::uint8_t { kYes, kOthers, kUnlessP2p, kUnknown, kNo };
[[nodiscard]] std::string_view to_string(Readable readable) noexcept;

// NVIDIA's immediate action, in normalized form.
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

// A recovery action, by its value in NVML field 230 and Xid 154.
struct RecoveryRow {
  std::uint32_t value = 0;
  std::string name;
  std::string texts;  // the texts in Xid 154, alternatives separated by |
  Outcome evacuation = Outcome::kNone;
  Readable memory_readable = Readable::kYes;
  std::string meaning;
};

// A pattern of 32 bits: '0', '1', and '-' for either value.
struct BitPattern {
  std::uint32_t mask = 0;
  std::uint32_t value = 0;
  [[nodiscard]] bool matches(std::uint32_t word) const noexcept { return (word & mask) == value; }
};

enum class LinkSeverity : std::uint8_t { kNonFatal, kLinkFatal, kFatal };
[[nodiscard]] std::string_view to_string(LinkSeverity severity) noexcept;

struct Nvlink5Row {
  std::uint32_t xid = 0;
  std::string unit;    // the unit's names, alternatives separated by /
  BitPattern info_v1;  // the pattern of IntrInfo for drivers before R575
  BitPattern info_v2;  // the pattern of IntrInfo for drivers since R575
  std::uint32_t error_status = 0;
  std::string immediate;  // NVIDIA's text of the immediate action
  LinkSeverity severity = LinkSeverity::kNonFatal;
};

class XidTable {
 public:
  // Returns the rows that are compiled in.
  static XidTable built_in();

  // Overrides rows with the `text` of a file: a table of Xids or of recovery actions. `source` names the file
  // in errors.
  Result<void> override_with(std::string_view text, std::string_view source);
  // Reads the file and overrides rows with its text.
  Result<void> override_with_file(const std::string& path);

  // Returns the row with this number. Returns null if there is no such row.
  [[nodiscard]] const XidRow* xid(std::uint32_t code) const;
  [[nodiscard]] const RecoveryRow* recovery(std::uint32_t value) const;
  [[nodiscard]] const std::map<std::uint32_t, XidRow>& xids() const noexcept { return xids_; }
  [[nodiscard]] const std::map<std::uint32_t, RecoveryRow>& recoveries() const noexcept {
    return recoveries_;
  }
  [[nodiscard]] const std::vector<Nvlink5Row>& nvlink5() const noexcept { return nvlink5_; }
  // Returns the file of an overridden row. Returns an empty string for a compiled-in row.
  [[nodiscard]] std::string origin_of_xid(std::uint32_t code) const;

 private:
  XidTable() = default;
  std::map<std::uint32_t, XidRow> xids_;
  std::map<std::uint32_t, RecoveryRow> recoveries_;
  std::vector<Nvlink5Row> nvlink5_;
  std::map<std::uint32_t, std::string> xid_origins_;
};

}  // namespace ckpt::health
