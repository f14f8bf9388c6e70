// SPDX-License-Identifier: Apache-2.0
#include "libckpt/health/kernel_log.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <utility>

namespace ckpt::health {
namespace {

constexpr std::uint32_t kMaxXid = 99999;
constexpr std::size_t kMaxLines = 16;  // the maximum number of lines in one record
constexpr int kMaxLinesBetween = 3;    // the maximum number of other lines within a driver message of several
                                       // lines

// A scanner that reads texts and numbers from the front of a text.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : rest_(text) {}

  bool consume(std::string_view word) {
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  // Reads a number of 1 to `max_digits` digits.
  std::optional<std::uint64_t> number(int base, std::size_t max_digits) {
    std::uint64_t value = 0;
    const char* end = rest_.data() + std::min(rest_.size(), max_digits);
    const auto [stopped, error] = std::from_chars(rest_.data(), end, value, base);
    const bool signed_text = !rest_.empty() && rest_.front() == '-';
    if (error != std::errc{} || stopped == rest_.data() || signed_text) return std::nullopt;
    rest_.remove_prefix(static_cast<std::size_t>(stopped - rest_.data()));
    return value;
  }
  std::optional<std::uint32_t> number32(int base, std::size_t max_digits) {
    const auto value = number(base, max_digits);
    if (!value || *value > UINT32_MAX) return std::nullopt;
    return static_cast<std::uint32_t>(*value);
  }
  // Reads up to one of the characters `ends`, which is not consumed, and at most `limit` characters.
  std::string_view word(std::string_view ends, std::size_t limit) {
    const std::size_t end = std::min({rest_.find_first_of(ends), rest_.size(), limit});
    const std::string_view part = rest_.substr(0, end);
    rest_.remove_prefix(end);
    return part;
  }
  void skip_blanks() { rest_.remove_prefix(std::min(rest_.find_first_not_of(' '), rest_.size())); }
  [[nodiscard]] std::string_view rest() const { return rest_; }
  [[nodiscard]] bool empty() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

std::string printable(std::string_view text, std::size_t limit) {
  std::string out(text.substr(0, limit));
  std::replace_if(
      out.begin(), out.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return out;
}

std::optional<PciAddress> scan_pci(Scanner& scanner) {
  scanner.consume("PCI:");
  PciAddress address;
  const auto domain = scanner.number32(16, 8);
  if (!domain || !scanner.consume(":")) return std::nullopt;
  const auto bus = scanner.number32(16, 2);
  if (!bus || !scanner.consume(":")) return std::nullopt;
  const auto device = scanner.number32(16, 2);
  if (!device) return std::nullopt;
  if (scanner.consume(".") && !scanner.number(16, 1)) return std::nullopt;
  address.domain = *domain;
  address.bus = *bus;
  address.device = *device;
  return address;
}

// Reads a place, such as "(PCI:0000:01:00 GPU-I:02 GPU-CI:00): ".
bool scan_place(Scanner& scanner, XidLine& line) {
  if (!scanner.consume("(")) return false;
  const auto gpu = scan_pci(scanner);
  if (!gpu) return false;
  line.gpu = *gpu;
  if (scanner.consume(" GPU-I:")) {
    line.gpu_instance = scanner.number32(16, 4);
    if (!line.gpu_instance) return false;
  }
  if (scanner.consume(" GPU-CI:")) {
    line.compute_instance = scanner.number32(16, 4);
    if (!line.compute_instance) return false;
  }
  return scanner.consume("): ");
}

// Reads a process: ", pid=7194" or ", pid='<unknown>'", then optionally ", name=...".
void scan_process(Scanner& scanner, XidLine& line) {
  if (scanner.consume(", pid=")) {
    if (const auto pid = scanner.number(10, 10); pid && *pid <= INT32_MAX)
      line.pid = static_cast<std::int32_t>(*pid);
    scanner.word(",", kMaxRecordBytes);
  }
  // A process chooses its own name. Whatever the name is, it ends before the next comma and is not used.
  if (scanner.consume(", name=")) scanner.word(",", kMaxRecordBytes);
  scanner.consume(",");
  scanner.skip_blanks();
}

// Returns the hexadecimal number after the first `label`.
std::optional<std::uint32_t> hexadecimal_after(std::string_view text, std::string_view label) {
  const std::size_t at = text.find(label);
  if (at == std::string_view::npos) return std::nullopt;
  Scanner scanner(text.substr(at + label.size()));
  if (!scanner.consume("0x")) return std::nullopt;
  return scanner.number32(16, 8);
}

// Returns the answer after the last `label`. The driver ends the line with the answer. A process's name
// precedes the answer and may contain any text.
std::optional<bool> answer_after(std::string_view text, std::string_view label) {
  const std::size_t at = text.rfind(label);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view answer = text.substr(at + label.size());
  if (answer.starts_with("Yes")) return true;
  return answer.starts_with("No") ? std::optional<bool>(false) : std::nullopt;
}

// Reads a link event, such as "NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000 ...)".
std::optional<LinkEvent> scan_link(std::string_view text) {
  Scanner scanner(text);
  LinkEvent event;
  event.unit = printable(scanner.word(" ", 40), 40);
  scanner.skip_blanks();
  event.severity = printable(scanner.word(" ", 20), 20);
  if (event.severity == "Link")
    event.severity += " " + printable(scanner.consume(" ") ? scanner.word(" ", 20) : "", 20);
  const std::size_t link = scanner.rest().find("Link ");
  if (link != std::string_view::npos) {
    Scanner number(scanner.rest().substr(link + 5));
    event.link = number.number32(10, 3).value_or(0);
  }
  const std::size_t words = scanner.rest().find("(0x");
  if (words == std::string_view::npos) return std::nullopt;
  Scanner numbers(scanner.rest().substr(words + 1));
  numbers.consume("0x");
  const auto info = numbers.number32(16, 8);
  numbers.skip_blanks();
  const auto status = numbers.consume("0x") ? numbers.number32(16, 8) : std::nullopt;
  if (!info || !status) return std::nullopt;
  event.info = *info;
  event.error_status = *status;
  return event;
}

bool is_nvlink5(std::uint32_t xid) {
  return xid >= 144 && xid <= 150;
}

std::optional<XidLine> scan_xid(Scanner scanner) {
  XidLine line;
  if (!scan_place(scanner, line)) return std::nullopt;
  const auto xid = scanner.number32(10, 6);
  if (!xid || *xid == 0 || *xid > kMaxXid) return std::nullopt;
  if (!scanner.empty() && !scanner.rest().starts_with(',')) return std::nullopt;
  line.xid = *xid;
  scan_process(scanner, line);
  const std::string_view text = scanner.rest();
  line.detail = printable(text, kMaxDetailBytes);
  if (line.xid == 154) {
    line.recovery_from = hexadecimal_after(text, "from ");
    line.recovery_to = hexadecimal_after(text, " to ");
  }
  if (is_nvlink5(line.xid)) line.link = scan_link(text);
  line.reset_required = answer_after(text, " RST: ");
  line.drain_required = answer_after(text, " D-RST: ");
  if (const std::size_t cause = text.find("caused by previous Xid "); cause != std::string_view::npos) {
    Scanner number(text.substr(cause + 23));
    line.caused_by = number.number32(10, 6);
  }
  return line;
}

// Removes the time that a log daemon or dmesg adds before the text: "[  123.456789] ".
std::string_view without_time(std::string_view line) {
  if (!line.starts_with('[')) return line;
  const std::size_t end = line.find("] ");
  if (end == std::string_view::npos ||
      line.substr(1, end - 1).find_first_not_of(" .0123456789") != std::string_view::npos)
    return line;
  return line.substr(end + 2);
}

std::optional<std::string> uuid_of(std::string_view text) {
  constexpr std::size_t kUuidBytes = 40;  // the length of GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx
  const std::string_view uuid = text.substr(0, kUuidBytes);
  if (uuid.size() != kUuidBytes || !uuid.starts_with("GPU-")) return std::nullopt;
  if (uuid.substr(4).find_first_not_of("0123456789abcdefABCDEF-") != std::string_view::npos)
    return std::nullopt;
  return std::string(uuid);
}

// Decodes \xNN, which the kernel writes for unprintable bytes.
std::string unescaped(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    Scanner scanner(text.substr(std::min<std::size_t>(2, text.size())));
    const bool escape = text.starts_with("\\x") && text.size() >= 4;
    const auto value = escape ? scanner.number(16, 2) : std::nullopt;
    const bool whole = value && text.size() - 2 - scanner.rest().size() == 2;
    out += whole ? static_cast<char>(*value) : text.front();
    text.remove_prefix(whole ? 4 : 1);
  }
  return out;
}

}  // namespace

std::string PciAddress::to_string() const {
  char text[32];
  std::snprintf(text, sizeof text, "%04x:%02x:%02x", domain, bus, device);
  return text;
}

std::optional<PciAddress> parse_pci(std::string_view text) {
  Scanner scanner(text);
  const auto address = scan_pci(scanner);
  return scanner.empty() ? address : std::nullopt;
}

std::optional<KernelRecord> parse_record(std::string_view bytes) {
  Scanner scanner(bytes.substr(0, kMaxRecordBytes));
  KernelRecord record;
  const auto priority = scanner.number32(10, 6);
  if (!priority || !scanner.consume(",")) return std::nullopt;
  const auto sequence = scanner.number(10, 20);
  if (!sequence || !scanner.consume(",")) return std::nullopt;
  const auto time = scanner.number(10, 18);
  if (!time) return std::nullopt;
  const std::size_t text = scanner.rest().find(';');
  if (!scanner.rest().starts_with(',') || text == std::string_view::npos) return std::nullopt;
  record.facility = *priority >> 3;
  record.sequence = *sequence;
  record.time_us = static_cast<std::int64_t>(*time);
  const std::string_view message = scanner.rest().substr(text + 1);
  record.text = unescaped(message.substr(0, message.find('\n')));  // the device's properties follow the line
                                                                   // end
  return record;
}

std::vector<LogEvent> KernelLogParser::parse(std::string_view text) {
  std::vector<LogEvent> events;
  text = text.substr(0, kMaxRecordBytes);
  for (std::size_t lines = 0; lines < kMaxLines && !text.empty(); ++lines) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    if (auto event = take_line(without_time(text.substr(0, end)))) events.push_back(std::move(*event));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return events;
}

std::optional<LogEvent> KernelLogParser::take_line(std::string_view line) {
  Scanner scanner(line);
  if (announced_ && ++lines_since_ > kMaxLinesBetween) announced_.reset();
  if (!scanner.consume("NVRM: ")) return std::nullopt;
  if (scanner.consume("Xid ")) {
    auto xid = scan_xid(scanner);
    return xid ? std::optional<LogEvent>(std::move(*xid)) : std::nullopt;
  }
  constexpr std::string_view kFallen = "fallen off the bus";
  const bool fallen = line.find(kFallen) != std::string_view::npos;
  if (scanner.consume("The NVIDIA GPU ")) announced_ = scan_pci(scanner), lines_since_ = 0;
  if (announced_ && fallen) {
    LostLine lost;
    lost.gpu = *std::exchange(announced_, std::nullopt);
    return lost;
  }
  if (scanner.consume("GPU at ")) {
    IdentityLine identity;
    const auto gpu = scan_pci(scanner);
    const auto uuid = gpu && scanner.consume(": ") ? uuid_of(scanner.rest()) : std::nullopt;
    if (!uuid) return std::nullopt;
    identity.gpu = *gpu;
    identity.uuid = *uuid;
    return identity;
  }
  if (!fallen || !scanner.consume("GPU ")) return std::nullopt;
  const auto gpu = scan_pci(scanner);
  if (!gpu || !scanner.consume(": ")) return std::nullopt;
  LostLine lost;
  lost.gpu = *gpu;
  return lost;
}

std::optional<XidLine> parse_xid_line(std::string_view line) {
  KernelLogParser parser;
  for (LogEvent& event : parser.parse(line)) {
    if (auto* xid = std::get_if<XidLine>(&event)) return std::move(*xid);
  }
  return std::nullopt;
}

}  // namespace ckpt::health
