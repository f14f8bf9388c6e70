// SPDX-License-Identifier: Apache-2.0
#include "libckpt/health/table.h"

#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "libckpt/base/fd.h"
#include "libckpt/health/csv.h"
#include "libckpt/health/tables.h"

namespace ckpt::health {
namespace {

constexpr std::uint32_t kMaxXid = 99999;
constexpr std::uint32_t kMaxRecovery = 255;
constexpr std::size_t kMaxText = 400;

constexpr std::array<std::string_view, 3> kOutcomes{"none", "live", "restore"};
constexpr std::array<std::string_view, 5> kReadables{"yes", "others", "unless_p2p", "unknown", "no"};
constexpr std::array<std::string_view, 12> kRemedies{
    "none",        "restart_app", "drain_then_reset", "reset_gpu",
    "reboot_node", "restart_vm",  "contact_support",  "check_mechanicals",
    "update_sw",   "check_uvm",   "decode_nvlink5",   "follow_xid154"};

constexpr std::array<std::string_view, 7> kXidHeader{"xid",    "name",       "cause", "memory_readable",
                                                     "action", "evacuation", "source"};
constexpr std::array<std::string_view, 6> kRecoveryHeader{"value",      "nvml_name",       "xid154_text",
                                                          "evacuation", "memory_readable", "meaning"};
constexpr std::array<std::string_view, 11> kNvlink5Header{"xid",
                                                          "unit",
                                                          "intrinfo_v1_lt_r575",
                                                          "intrinfo_v2_ge_r575",
                                                          "error_status",
                                                          "immediate",
                                                          "action2",
                                                          "investigatory",
                                                          "severity",
                                                          "hw_sw",
                                                          "impact"};

template <std::size_t N>
bool is_header(const CsvRow& row, const std::array<std::string_view, N>& header) {
  if (row.fields.size() != N) return false;
  for (std::size_t i = 0; i < N; ++i) {
    if (row.fields[i].text != header[i]) return false;
  }
  return true;
}

// A reader of one row's fields, from the front. It stores each field in the member that belongs to the field.
class RowReader {
 public:
  RowReader(const CsvRow& row, std::string_view source) : row_(row), source_(source) {}

  template <std::size_t N>
  Result<void> has(const std::array<std::string_view, N>& /*header*/) const {
    if (row_.fields.size() == N) return ok();
    const std::size_t column = row_.fields.size() > N ? row_.fields[N].column : row_.fields.back().column;
    return csv_error(source_, row_.line, column,
                     std::to_string(row_.fields.size()) + " fields instead of " + std::to_string(N));
  }

  Result<void> number(std::uint32_t limit, std::uint32_t& into) {
    const CsvField& field = next();
    const char* end = field.text.data() + field.text.size();
    std::uint32_t value = 0;
    const auto [stopped, error] = std::from_chars(field.text.data(), end, value);
    if (error != std::errc{} || stopped != end || value > limit)
      return bad(field, "must be a whole number up to " + std::to_string(limit));
    into = value;
    return ok();
  }

  Result<void> hexadecimal(std::uint32_t& into) {
    const CsvField& field = next();
    const char* end = field.text.data() + field.text.size();
    std::uint32_t value = 0;
    if (field.text.starts_with("0x")) {
      const auto [stopped, error] = std::from_chars(field.text.data() + 2, end, value, 16);
      if (error == std::errc{} && stopped == end) {
        into = value;
        return ok();
      }
    }
    return bad(field, "must be a hexadecimal number of 32 bits like 0x00000001");
  }

  Result<void> text(bool required, std::string& into) {
    const CsvField& field = next();
    if (required && field.text.empty()) return bad(field, "must not be empty");
    if (field.text.size() > kMaxText)
      return bad(field, "must have at most " + std::to_string(kMaxText) + " characters");
    for (const char c : field.text) {
      if (static_cast<unsigned char>(c) < ' ' || c == 0x7f)
        return bad(field, "must have no control character");
    }
    into = field.text;
    return ok();
  }

  template <class Enum, std::size_t N>
  Result<void> word(const std::array<std::string_view, N>& words, Enum& into) {
    const CsvField& field = next();
    std::string expected;
    for (std::size_t i = 0; i < N; ++i) {
      if (field.text == words[i]) {
        into = static_cast<Enum>(i);
        return ok();
      }
      expected += (i == 0 ? "" : ", ") + std::string(words[i]);
    }
    return bad(field, "must be one of " + expected);
  }

  Result<void> bits(BitPattern& into) {
    const CsvField& field = next();
    if (field.text.size() != 32 || field.text.find_first_not_of("01-") != std::string::npos)
      return bad(field, "must be 32 characters of 0, 1 and -");
    BitPattern pattern;
    for (const char c : field.text) {
      pattern.mask = pattern.mask << 1 | (c == '-' ? 0U : 1U);
      pattern.value = pattern.value << 1 | (c == '1' ? 1U : 0U);
    }
    into = pattern;
    return ok();
  }

  Result<void> severity(LinkSeverity& into) {
    const CsvField& field = next();
    // NVIDIA's footnote marks follow the word.
    for (const auto& [word, severity] :
         {std::pair("Non-fatal", LinkSeverity::kNonFatal), std::pair("Link Fatal", LinkSeverity::kLinkFatal),
          std::pair("Fatal", LinkSeverity::kFatal)}) {
      if (field.text.starts_with(word)) {
        into = severity;
        return ok();
      }
    }
    return bad(field, "must be Non-fatal, Link Fatal or Fatal");
  }

  void skip() { next(); }

 private:
  const CsvField& next() { return row_.fields[at_++]; }
  Error bad(const CsvField& field, const std::string& what) const {
    return csv_error(source_, row_.line, field.column, "\"" + field.text.substr(0, 60) + "\" " + what);
  }

  const CsvRow& row_;
  std::string_view source_;
  std::size_t at_ = 0;
};

Result<XidRow> read_xid(const CsvRow& csv, std::string_view source) {
  RowReader reader(csv, source);
  XidRow row;
  CKPT_TRYV(reader.has(kXidHeader));
  CKPT_TRYV(reader.number(kMaxXid, row.xid));
  CKPT_TRYV(reader.text(true, row.name));
  CKPT_TRYV(reader.text(true, row.cause));
  CKPT_TRYV(reader.word(kReadables, row.memory_readable));
  CKPT_TRYV(reader.word(kRemedies, row.action));
  CKPT_TRYV(reader.word(kOutcomes, row.evacuation));
  CKPT_TRYV(reader.text(false, row.source));
  return row;
}

Result<RecoveryRow> read_recovery(const CsvRow& csv, std::string_view source) {
  RowReader reader(csv, source);
  RecoveryRow row;
  CKPT_TRYV(reader.has(kRecoveryHeader));
  CKPT_TRYV(reader.number(kMaxRecovery, row.value));
  CKPT_TRYV(reader.text(true, row.name));
  CKPT_TRYV(reader.text(false, row.texts));
  CKPT_TRYV(reader.word(kOutcomes, row.evacuation));
  CKPT_TRYV(reader.word(kReadables, row.memory_readable));
  CKPT_TRYV(reader.text(false, row.meaning));
  return row;
}

Result<Nvlink5Row> read_nvlink5(const CsvRow& csv, std::string_view source) {
  RowReader reader(csv, source);
  Nvlink5Row row;
  CKPT_TRYV(reader.has(kNvlink5Header));
  CKPT_TRYV(reader.number(kMaxXid, row.xid));
  CKPT_TRYV(reader.text(true, row.unit));
  CKPT_TRYV(reader.bits(row.info_v1));
  CKPT_TRYV(reader.bits(row.info_v2));
  CKPT_TRYV(reader.hexadecimal(row.error_status));
  CKPT_TRYV(reader.text(true, row.immediate));
  reader.skip();  // skips the column action2
  reader.skip();  // skips the column investigatory
  CKPT_TRYV(reader.severity(row.severity));
  return row;
}

// Reads the rows by id. An id that occurs twice in one file is an error.
template <class Row, class Read, class Id>
Result<std::map<std::uint32_t, Row>> read_rows(const std::vector<CsvRow>& rows, std::string_view source,
                                               Read read, Id id) {
  std::map<std::uint32_t, Row> out;
  for (std::size_t i = 1; i < rows.size(); ++i) {
    CKPT_TRY(row, read(rows[i], source));
    const std::uint32_t key = id(row);
    if (!out.emplace(key, std::move(row)).second)
      return csv_error(source, rows[i].line, 1, "duplicate row for " + std::to_string(key));
  }
  return out;
}

Result<std::vector<Nvlink5Row>> read_nvlink5_table() {
  CKPT_TRY(rows, read_csv(nvlink5_csv(), "xid_nvlink5_decode.csv"));
  if (rows.empty() || !is_header(rows.front(), kNvlink5Header))
    return csv_error("xid_nvlink5_decode.csv", 1, 1, "the header is missing or unknown");
  std::vector<Nvlink5Row> out;
  for (std::size_t i = 1; i < rows.size(); ++i) {
    CKPT_TRY(row, read_nvlink5(rows[i], "xid_nvlink5_decode.csv"));
    out.push_back(std::move(row));
  }
  return out;
}

// Terminates the process because a compiled-in table is wrong. Every build's test fails in that case.
[[noreturn]] void built_wrongly(const Error& error) {
  std::fprintf(stderr, "a built-in table is wrong: %s\n", error.to_string().c_str());
  std::abort();
}

}  // namespace

std::string_view to_string(Outcome outcome) noexcept {
  return kOutcomes[static_cast<std::size_t>(outcome)];
}
std::string_view to_string(Readable readable) noexcept {
  return kReadables[static_cast<std::size_t>(readable)];
}
std::string_view to_string(Remedy remedy) noexcept {
  return kRemedies[static_cast<std::size_t>(remedy)];
}
std::string_view to_string(LinkSeverity severity) noexcept {
  constexpr std::array<std::string_view, 3> kNames{"non-fatal", "link fatal", "fatal"};
  return kNames[static_cast<std::size_t>(severity)];
}

XidTable XidTable::built_in() {
  XidTable table;
  if (auto applied = table.override_with(xid_csv(), "xid.csv"); !applied) built_wrongly(applied.error());
  if (auto applied = table.override_with(recovery_action_csv(), "recovery_action.csv"); !applied)
    built_wrongly(applied.error());
  auto links = read_nvlink5_table();
  if (!links) built_wrongly(links.error());
  table.nvlink5_ = *std::move(links);
  table.xid_origins_.clear();
  return table;
}

Result<void> XidTable::override_with(std::string_view text, std::string_view source) {
  CKPT_TRY(rows, read_csv(text, source));
  if (!rows.empty() && is_header(rows.front(), kXidHeader)) {
    CKPT_TRY(read, read_rows<XidRow>(rows, source, read_xid, [](const XidRow& row) { return row.xid; }));
    for (auto& [xid, row] : read) {
      xid_origins_[xid] = std::string(source);
      xids_[xid] = std::move(row);
    }
    return ok();
  }
  if (!rows.empty() && is_header(rows.front(), kRecoveryHeader)) {
    CKPT_TRY(read, read_rows<RecoveryRow>(rows, source, read_recovery,
                                          [](const RecoveryRow& row) { return row.value; }));
    for (auto& [value, row] : read) recoveries_[value] = std::move(row);
    return ok();
  }
  return csv_error(source, rows.empty() ? 1 : rows.front().line, 1,
                   "the first line must be the header of a table of Xids "
                   "(xid,name,cause,memory_readable,action,evacuation,source) or of recovery actions "
                   "(value,nvml_name,xid154_text,evacuation,memory_readable,meaning)");
}

Result<void> XidTable::override_with_file(const std::string& path) {
  CKPT_TRY(text, read_file(path, kMaxCsvBytes));
  return override_with(text, path);
}

const XidRow* XidTable::xid(std::uint32_t code) const {
  const auto found = xids_.find(code);
  return found == xids_.end() ? nullptr : &found->second;
}

const RecoveryRow* XidTable::recovery(std::uint32_t value) const {
  const auto found = recoveries_.find(value);
  return found == recoveries_.end() ? nullptr : &found->second;
}

std::string XidTable::origin_of_xid(std::uint32_t code) const {
  const auto found = xid_origins_.find(code);
  return found == xid_origins_.end() ? std::string() : found->second;
}

}  // namespace ckpt::health
