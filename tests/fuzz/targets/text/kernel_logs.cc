// SPDX-License-Identifier: Apache-2.0
// The kernel's log and the operator's tables: {which u8, text}. Records and lines give bounded, printable
// events, which decide() accepts. The rows of an accepted table have only words that are in range.
#include "libckpt/health/decide.h"
#include "tests/fuzz/fuzz.h"

namespace ckpt::fuzz {
namespace {

void check_printable(const std::string& text, std::size_t limit) {
  FUZZ_CHECK(text.size() <= limit);
  for (const char c : text) FUZZ_CHECK(c >= ' ' && c <= '~');
}

const health::XidTable& built_in() {
  static const health::XidTable table = health::XidTable::built_in();
  return table;
}

void check_events(const std::string& text) {
  const health::XidTable& table = built_in();
  health::KernelLogParser parser;
  health::Evidence evidence;
  for (const health::LogEvent& event : parser.parse(text)) {
    if (const auto* identity = std::get_if<health::IdentityLine>(&event))
      FUZZ_CHECK(identity->uuid.size() == 40);
    const auto* line = std::get_if<health::XidLine>(&event);
    if (line == nullptr) continue;
    FUZZ_CHECK(line->xid >= 1 && line->xid <= 99999 && line->pid >= 0);
    check_printable(line->detail, health::kMaxDetailBytes);
    if (line->link) check_printable(line->link->unit, 40);
    evidence.xids.push_back(health::seen_of(table, *line));
    evidence.xids.back().victim = line->pid;
    health::ProcessFacts process;
    process.pid = line->pid;
    evidence.processes.push_back(process);
  }
  FUZZ_CHECK(evidence.xids.size() <= 16);
  const health::Decision decision = health::decide(table, evidence);
  FUZZ_CHECK(decision.processes.size() == evidence.processes.size() && !decision.reason.empty());
}

void check_record(const std::string& bytes) {
  const auto record = health::parse_record(bytes);
  if (!record) return;
  FUZZ_CHECK(record->text.size() <= bytes.size() && record->time_us >= 0);
  check_events(record->text);
}

void check_table(const std::string& text) {
  health::XidTable table = built_in();
  if (!table.override_with(text, "fuzz.csv")) return;
  for (const auto& [xid, row] : table.xids()) {
    FUZZ_CHECK(row.xid == xid && !row.name.empty());
    FUZZ_CHECK(!health::to_string(row.action).empty() && !health::to_string(row.memory_readable).empty());
  }
  for (const auto& [value, row] : table.recoveries()) FUZZ_CHECK(row.value == value && value <= 255);
}

}  // namespace
}  // namespace ckpt::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ckpt::fuzz;
  Input input(data, size);
  const auto which = input.number<std::uint8_t>();
  constexpr void (*kChecks[])(const std::string&) = {check_record, check_events, check_table};
  kChecks[which % std::size(kChecks)](input.text());
  return 0;
}
