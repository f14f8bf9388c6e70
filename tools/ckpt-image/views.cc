// SPDX-License-Identifier: Apache-2.0
#include "tools/ckpt-image/views.h"

#include <ctime>

#include "tools/common/units.h"
#include "tools/gpumigrate/client/table.h"

namespace ckpt::image_tool {
namespace {

using cli::Table;
using nlohmann::json;
using tools::format_bytes;

std::string size(std::uint64_t bytes) {
  return format_bytes(static_cast<double>(bytes));
}

std::string time_of(std::int64_t unix_ms) {
  const std::time_t seconds = unix_ms / 1000;
  std::tm parts{};
  char text[32];
  if (::gmtime_r(&seconds, &parts) == nullptr ||
      std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts) == 0)
    return "?";
  return text;
}

std::string ranges_text(const std::vector<checkpoint_store::ChunkRange>& ranges) {
  constexpr std::size_t kShown = 8;
  std::string text;
  for (std::size_t i = 0; i < ranges.size() && i < kShown; ++i) {
    if (i != 0) text += ",";
    text += std::to_string(ranges[i].first);
    if (ranges[i].count > 1) text += "-" + std::to_string(ranges[i].first + ranges[i].count - 1);
  }
  return ranges.size() > kShown ? text + ",..." : text;
}

}  // namespace

json to_json(const std::vector<checkpoint_store::JobSummary>& jobs) {
  json list = json::array();
  for (const auto& job : jobs)
    list.push_back({{"job", job.job},
                    {"versions", job.versions},
                    {"damaged_versions", job.damaged_versions},
                    {"newest", job.newest},
                    {"newest_ms", job.newest_ms},
                    {"stored_bytes", job.stored_bytes}});
  return list;
}

std::string to_table(const std::vector<checkpoint_store::JobSummary>& jobs) {
  Table table({"JOB", "VERSIONS", "DAMAGED", "NEWEST", "TAKEN", "STORED"});
  for (const auto& job : jobs)
    table.add({job.job, std::to_string(job.versions), std::to_string(job.damaged_versions),
               job.versions == 0 ? "-" : std::to_string(job.newest),
               job.versions == 0 ? "-" : time_of(job.newest_ms), size(job.stored_bytes)});
  return table.text();
}

json to_json(const VersionList& versions) {
  json list = json::array();
  for (const auto& version : versions.whole)
    list.push_back({{"version", version->number},
                    {"parent", version->parent},
                    {"created_ms", version->created_ms},
                    {"incarnation", version->incarnation},
                    {"step", version->step},
                    {"regions", version->regions.size()},
                    {"state_bytes", version->state_bytes()},
                    {"blob_bytes", version->blob_bytes()},
                    {"new_chunks", version->new_chunks},
                    {"written_bytes", version->written_bytes},
                    {"whole", true}});
  for (const auto& damaged : versions.damaged)
    list.push_back({{"version", damaged.number}, {"whole", false}, {"error", damaged.error.to_string()}});
  return list;
}

std::string to_table(const VersionList& versions) {
  Table table({"VERSION", "PARENT", "TAKEN", "STEP", "STATE", "HOST", "NEW CHUNKS", "WRITTEN"});
  for (const auto& version : versions.whole)
    table.add({std::to_string(version->number), version->parent == 0 ? "-" : std::to_string(version->parent),
               time_of(version->created_ms), std::to_string(version->step), size(version->state_bytes()),
               size(version->blob_bytes()), std::to_string(version->new_chunks),
               size(version->written_bytes)});
  std::string text = table.text();
  for (const auto& damaged : versions.damaged) text += cli::printable(damaged.error.to_string()) + "\n";
  return text;
}

json to_json(const checkpoint_store::Version& version) {
  json regions = json::array();
  for (const auto& region : version.regions)
    regions.push_back({{"rank", region.rank},
                       {"id", region.id},
                       {"generation", region.generation},
                       {"name", region.name},
                       {"bytes", region.list.bytes},
                       {"chunks", region.list.chunk_count()}});
  json blobs = json::array();
  for (const auto& blob : version.blobs) blobs.push_back({{"name", blob.name}, {"bytes", blob.list.bytes}});
  json labels = json::object();
  for (const auto& label : version.labels) labels[label.name] = label.value;
  return {{"job", version.job},
          {"version", version.number},
          {"parent", version.parent},
          {"created_ms", version.created_ms},
          {"incarnation", version.incarnation},
          {"step", version.step},
          {"labels", std::move(labels)},
          {"chunk_bytes", version.chunk_bytes},
          {"state_bytes", version.state_bytes()},
          {"blob_bytes", version.blob_bytes()},
          {"new_chunks", version.new_chunks},
          {"new_plain_bytes", version.new_plain_bytes},
          {"written_bytes", version.written_bytes},
          {"regions", std::move(regions)},
          {"blobs", std::move(blobs)}};
}

std::string to_table(const checkpoint_store::Version& version) {
  std::string text = "job " + version.job + ", version " + std::to_string(version.number) + " of " +
                     time_of(version.created_ms) + ", incarnation " + std::to_string(version.incarnation) +
                     ", step " + std::to_string(version.step) + "\n" + size(version.state_bytes()) +
                     " of device memory in chunks of " + size(version.chunk_bytes) + ", " +
                     size(version.blob_bytes()) + " of host state; " + std::to_string(version.new_chunks) +
                     " chunks were new, " + size(version.written_bytes) + " were written\n";
  for (const auto& label : version.labels) text += cli::printable(label.name + ": " + label.value) + "\n";
  Table table({"RANK", "REGION", "GENERATION", "BYTES", "CHUNKS", "NAME"});
  for (const auto& region : version.regions)
    table.add({std::to_string(region.rank), std::to_string(region.id), std::to_string(region.generation),
               std::to_string(region.list.bytes), std::to_string(region.list.chunk_count()), region.name});
  for (const auto& blob : version.blobs)
    table.add(
        {"-", "-", "-", std::to_string(blob.list.bytes), std::to_string(blob.list.chunk_count()), blob.name});
  return text + table.text();
}

json to_json(const checkpoint_store::ScrubReport& report) {
  json findings = json::array();
  for (const auto& finding : report.findings)
    findings.push_back({{"where", finding.where}, {"what", finding.what}});
  json versions = json::array();
  for (const auto& health : report.versions)
    versions.push_back({{"version", health.number},
                        {"restorable", health.restorable},
                        {"damaged_chunks", health.damaged_chunks},
                        {"first", health.first}});
  return {{"clean", report.is_clean()}, {"packs", report.packs},           {"records", report.records},
          {"bytes", report.bytes},      {"findings", std::move(findings)}, {"versions", std::move(versions)}};
}

std::string to_table(const checkpoint_store::ScrubReport& report) {
  std::string text;
  for (const auto& finding : report.findings)
    text += cli::printable(finding.where + ": " + finding.what) + "\n";
  Table table({"VERSION", "RESTORABLE", "DAMAGED CHUNKS", "FIRST"});
  for (const auto& health : report.versions)
    table.add({std::to_string(health.number), health.restorable ? "yes" : "NO",
               std::to_string(health.damaged_chunks), health.first});
  return text + table.text() + std::to_string(report.records) + " records in " +
         std::to_string(report.packs) + " packs, " + size(report.bytes) +
         " read: " + (report.is_clean() ? "nothing is damaged" : "DAMAGED") + "\n";
}

json to_json(const checkpoint_store::VersionDiff& diff) {
  json regions = json::array();
  for (const auto& region : diff.regions) {
    json ranges = json::array();
    for (const auto& range : region.ranges) ranges.push_back({range.first, range.count});
    regions.push_back({{"rank", region.rank},
                       {"id", region.id},
                       {"name", region.name},
                       {"change", checkpoint_store::to_string(region.change)},
                       {"bytes", region.bytes},
                       {"changed_chunks", region.changed_chunks},
                       {"changed_bytes", region.changed_bytes},
                       {"ranges", std::move(ranges)}});
  }
  json blobs = json::array();
  for (const auto& blob : diff.blobs)
    blobs.push_back({{"name", blob.name},
                     {"change", checkpoint_store::to_string(blob.change)},
                     {"bytes", blob.bytes},
                     {"changed_bytes", blob.changed_bytes}});
  return {
      {"changed_bytes", diff.changed_bytes()}, {"regions", std::move(regions)}, {"blobs", std::move(blobs)}};
}

std::string to_table(const checkpoint_store::VersionDiff& diff) {
  Table table({"RANK", "REGION", "CHANGE", "BYTES", "CHANGED", "CHUNKS", "WHICH", "NAME"});
  for (const auto& region : diff.regions)
    table.add({std::to_string(region.rank), std::to_string(region.id),
               std::string(checkpoint_store::to_string(region.change)), size(region.bytes),
               size(region.changed_bytes), std::to_string(region.changed_chunks), ranges_text(region.ranges),
               region.name});
  for (const auto& blob : diff.blobs)
    table.add({"-", "-", std::string(checkpoint_store::to_string(blob.change)), size(blob.bytes),
               size(blob.changed_bytes), "-", "-", blob.name});
  return table.text() + size(diff.changed_bytes()) + " differ\n";
}

}  // namespace ckpt::image_tool
