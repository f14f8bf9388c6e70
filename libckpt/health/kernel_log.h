// SPDX-License-Identifier: Apache-2.0
// Lines that NVIDIA's kernel driver writes into the kernel log about its GPUs:
//
//   NVRM: Xid (PCI:0000:01:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
//   NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: No
//   NVRM: Xid (PCI:0000:01:00 GPU-I:02 GPU-CI:00): 45, pid=.., name=.., Ch 00000008 caused by previous Xid 31
//   NVRM: Xid (PCI:0008:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)
//   NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000 ...)
//   NVRM: GPU 0000:18:00.0: GPU has fallen off the bus.
//   NVRM: The NVIDIA GPU 0000:18:00.0
//   NVRM: (PCI ID: ...) installed in this system has
//   NVRM: fallen off the bus and is not ...
//   NVRM: GPU at PCI:0000:01:00: GPU-12345678-...
//
// Other subsystems print text that users control, such as names of USB devices. A line therefore counts only
// if it begins with NVRM:. A record counts only if the kernel wrote it (facility 0, which no process can
// use).
// Threads: plain values. Errors: none; every other line is ignored. All texts are bounded and printable.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace ckpt::health {

inline constexpr std::size_t kMaxRecordBytes = 8192;  // the maximum size of a record of /dev/kmsg:
                                                      // CONSOLE_EXT_LOG_MAX
inline constexpr std::size_t kMaxDetailBytes = 200;

struct PciAddress {
  std::uint32_t domain = 0;
  std::uint32_t bus = 0;
  std::uint32_t device = 0;
  bool operator==(const PciAddress&) const = default;
  [[nodiscard]] std::string to_string() const;  // returns a text such as "0000:01:00"
};
// Parses "0000:01:00", "PCI:0000:01:00", "00000000:01:00.0".
[[nodiscard]] std::optional<PciAddress> parse_pci(std::string_view text);

// The unit of an NVLink 5 error, as a line of Xid 144-150 names it.
struct LinkEvent {
  std::string unit;      // the name of the unit, such as NETIR_LINK_EVT
  std::string severity;  // the severity in the line: Fatal or Nonfatal
  std::uint32_t link = 0;
  std::uint32_t info = 0;  // the IntrInfo word of the line
  std::uint32_t error_status = 0;
};

struct XidLine {
  PciAddress gpu;
  std::optional<std::uint32_t> gpu_instance;
  std::optional<std::uint32_t> compute_instance;
  std::uint32_t xid = 0;
  std::int32_t pid = 0;                        // the process's id; 0 if the line has none
  std::optional<std::uint32_t> recovery_from;  // the former recovery action; set for Xid 154
  std::optional<std::uint32_t> recovery_to;
  std::optional<std::uint32_t> caused_by;  // the number after "previous Xid" in the line
  std::optional<bool> reset_required;      // the value after "RST:" in the line
  std::optional<bool> drain_required;      // the value after "D-RST:" in the line
  std::optional<LinkEvent> link;
  std::string detail;  // the rest of the line, after number, pid and name
};

struct LostLine {
  PciAddress gpu;
};

struct IdentityLine {
  PciAddress gpu;
  std::string uuid;
};

using LogEvent = std::variant<XidLine, LostLine, IdentityLine>;

// A record in the form that /dev/kmsg returns: "6,4711,123456789,-;text\n KEY=value\n".
struct KernelRecord {
  std::uint32_t facility = 0;
  std::uint64_t sequence = 0;
  std::int64_t time_us = 0;  // the time since the kernel started
  std::string text;          // the text with \xNN decoded; it may have more than one line
};
[[nodiscard]] std::optional<KernelRecord> parse_record(std::string_view bytes);

// A parser of the kernel log. It requires lines in their order, because some driver messages have more than
// one line.
class KernelLogParser {
 public:
  // Returns the events of one record's text (or of one line of dmesg: "[  12.345] NVRM: ...").
  std::vector<LogEvent> parse(std::string_view text);

 private:
  std::optional<LogEvent> take_line(std::string_view line);
  std::optional<PciAddress> announced_;  // the GPU that the last line announced; set if that line was "The
                                         // NVIDIA GPU ..."
  int lines_since_ = 0;
};

// Parses a single line of an Xid, for tests and tools. Returns nullopt for every other line.
[[nodiscard]] std::optional<XidLine> parse_xid_line(std::string_view line);

}  // namespace ckpt::health
