// SPDX-License-Identifier: Apache-2.0
#include "agent/jobs/job_record.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <utility>

#include "libckpt/base/fd.h"
#include "libckpt/protocol/wire/ids.h"

namespace ckpt::agent {
namespace {

constexpr std::size_t kMaxRecordBytes = 1 << 20;

std::optional<std::uint64_t> number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

struct FolderName {
  std::uint64_t job;
  std::uint64_t incarnation;
  std::uint64_t migration;
  friend auto operator<=>(const FolderName&, const FolderName&) = default;
};

std::optional<FolderName> parse_folder_name(std::string_view name) {
  const auto dot = name.find('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const auto second = name.find(".m", dot + 1);
  const auto job = wire::parse_id('j', name.substr(0, dot));
  const auto incarnation =
      number(name.substr(dot + 1, second == std::string_view::npos ? second : second - dot - 1));
  const auto migration = second == std::string_view::npos ? std::optional<std::uint64_t>(0)
                                                          : wire::parse_id('m', name.substr(second + 1));
  if (!job || !incarnation || !migration) return std::nullopt;
  return FolderName{*job, *incarnation, *migration};
}

}  // namespace

std::string instance_folder(const std::string& jobs_folder, wire::JobId job, wire::Incarnation started_as,
                            wire::MigrationId migration) {
  const std::string folder = jobs_folder + "/" + wire::job_text(job) + "." + std::to_string(started_as);
  return migration == 0 ? folder : folder + "." + wire::migration_text(migration);
}

Result<std::vector<std::string>> list_instance_folders(const std::string& jobs_folder) {
  std::error_code error;
  std::filesystem::directory_iterator entries(jobs_folder, error);
  if (error) return Error::from_errno(error.value(), "Cannot list " + jobs_folder);
  std::vector<FolderName> found;
  for (const auto& entry : entries) {
    if (auto name = parse_folder_name(entry.path().filename().string())) found.push_back(*name);
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> folders;
  for (const FolderName& name : found)
    folders.push_back(instance_folder(jobs_folder, name.job, name.incarnation, name.migration));
  return folders;
}

Result<void> write_job_record(const std::string& folder, const JobRecord& record) {
  const auto bytes = wire::encode(record);
  return write_file_durably(folder + "/record",
                            std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

Result<void> JobRecordWriter::write(const JobRecord& record, std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  if (number < written_ || removed_) return ok();
  CKPT_TRYV(write_job_record(folder_, record));
  written_ = number;
  return ok();
}

Result<void> JobRecordWriter::remove_folder() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(removed_, true)) return ok();
  std::error_code error;
  std::filesystem::remove_all(folder_, error);
  if (error) return Error::from_errno(error.value(), "Cannot remove " + folder_);
  return ok();
}

Result<wire::RankSpec> only_rank(const std::vector<wire::RankSpec>& ranks) {
  if (ranks.size() == 1) return ranks.front();
  return Error(ErrorCode::kNotSupported, "An instance must have exactly one rank");
}

Result<JobRecord> read_job_record(const std::string& folder) {
  CKPT_TRY(text, read_file(folder + "/record", kMaxRecordBytes));
  auto record = wire::decode<JobRecord>(std::as_bytes(std::span(text.data(), text.size())));
  if (!record) return Error(ErrorCode::kCorrupt, folder + "/record is damaged").caused_by(record.error());
  if (auto rank = only_rank(record->spec.ranks); !rank)
    return Error(ErrorCode::kCorrupt, folder + "/record is damaged").caused_by(std::move(rank).error());
  return record;
}

}  // namespace ckpt::agent
