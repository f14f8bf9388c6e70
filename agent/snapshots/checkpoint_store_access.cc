// SPDX-License-Identifier: Apache-2.0
#include "agent/snapshots/checkpoint_store_access.h"

#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <iterator>

#include "libckpt/store/local/pack.h"
#include "libckpt/store/peer/tiered_files.h"

namespace ckpt::agent::protect {
namespace {

// The number of rows that always fit into one message.
constexpr std::size_t kMaxRowsAPart = 2000;
// The maximum number of rows that the coordinator accepts from one checkpoint store. The newest rows of each
// job stay, because the job may be parked there.
constexpr std::size_t kMaxRows = 100'000;

std::int64_t barrier_of(const checkpoint_store::Version& version) {
  for (const checkpoint_store::Label& label : version.labels) {
    std::int64_t value = 0;
    if (label.name != "barrier_ms") continue;
    std::from_chars(label.value.data(), label.value.data() + label.value.size(), value);
    if (value > 0) return value;
  }
  return version.created_ms;
}

wire::ImageRow row_of(const checkpoint_store::Version& version) {
  wire::ImageRow row;
  row.image_job = version.job;
  row.version = version.number;
  row.parent = version.parent;
  row.created_ms = barrier_of(version);
  row.incarnation = version.incarnation;
  row.state_bytes = version.state_bytes();
  row.written_bytes = version.written_bytes;
  const auto stored = image::decode_stored_job(version.job_record);
  row.damaged = !stored;
  if (stored) {
    row.job = stored->spec.job;
    row.sequence = stored->sequence;
    row.set = stored->set;
    row.gpu_model = stored->gpu_model;
  }
  return row;
}

// Adds the bytes of each version on the disk and in memory. Bytes that were in memory when the machine went
// down are in neither tier, and the version is damaged.
Result<void> add_tiers(const CheckpointStorePlace& place, checkpoint_store::CheckpointStore& checkpoint_store,
                       const std::string& job, std::span<wire::ImageRow> rows) {
  checkpoint_store::Tiers tiers;
  tiers.disk = place.path;
  tiers.memory = place.access.memory;
  CKPT_TRY(resident, checkpoint_store::TieredFiles(std::move(tiers)).packs_in_memory(job));
  CKPT_TRY(uses, checkpoint_store.uses(job));
  for (wire::ImageRow& row : rows) {
    const auto use = std::find_if(uses.begin(), uses.end(), [&](const checkpoint_store::VersionUse& u) {
      return u.number == row.version;
    });
    if (use == uses.end()) continue;
    row.damaged = row.damaged || !use->whole;
    for (const auto& [pack, bytes] : use->packs)
      (resident.contains(checkpoint_store::pack_name(pack)) ? row.memory_bytes : row.disk_bytes) += bytes;
  }
  return ok();
}

Result<void> list_job(const CheckpointStorePlace& place, checkpoint_store::CheckpointStore& checkpoint_store,
                      const std::string& job, std::vector<wire::ImageRow>& rows) {
  CKPT_TRY(list, checkpoint_store.list_versions(job));
  const std::size_t before = rows.size();
  for (const auto& version : list.versions) rows.push_back(row_of(*version));
  if (!place.access.memory.empty()) {
    CKPT_TRYV(add_tiers(place, checkpoint_store, job, std::span(rows).subspan(before)));
  }
  for (const checkpoint_store::DamagedVersion& version : list.damaged) {
    wire::ImageRow& row = rows.emplace_back();
    row.image_job = job;
    row.version = version.number;
    row.damaged = true;
  }
  return ok();
}

// Keeps the newest rows of each job. The rows of a job are sorted to be adjacent.
void retain_newest_of_each(std::vector<wire::ImageRow>& rows) {
  if (rows.size() <= kMaxRows) return;
  spdlog::warn("a checkpoint store has {} images: the oldest images of each job are not listed", rows.size());
  std::sort(rows.begin(), rows.end(), [](const wire::ImageRow& a, const wire::ImageRow& b) {
    return a.image_job != b.image_job ? a.image_job < b.image_job : a.version > b.version;
  });
  std::vector<std::pair<std::size_t, std::size_t>> by_age;  // for each row, the number of newer rows of its
                                                            // job and the row's index
  for (std::size_t i = 0, newer = 0; i < rows.size(); ++i) {
    newer = i > 0 && rows[i].image_job == rows[i - 1].image_job ? newer + 1 : 0;
    by_age.emplace_back(newer, i);
  }
  std::sort(by_age.begin(), by_age.end());
  by_age.resize(kMaxRows);
  std::vector<wire::ImageRow> retained;
  for (const auto& [newer, at] : by_age) retained.push_back(std::move(rows[at]));
  rows = std::move(retained);
}

std::vector<wire::CheckpointStoreContents> parts_of(wire::CheckpointStoreContents head,
                                                    std::vector<wire::ImageRow> rows) {
  std::vector<wire::CheckpointStoreContents> parts;
  for (std::size_t at = 0; at == 0 || at < rows.size(); at += kMaxRowsAPart) {
    const std::size_t end = std::min(rows.size(), at + kMaxRowsAPart);
    wire::CheckpointStoreContents& part = parts.emplace_back(head);
    part.part = static_cast<std::uint32_t>(parts.size() - 1);
    part.more = end < rows.size();
    part.images.assign(std::make_move_iterator(rows.begin() + static_cast<std::ptrdiff_t>(at)),
                       std::make_move_iterator(rows.begin() + static_cast<std::ptrdiff_t>(end)));
  }
  return parts;
}

Result<void> may_write(const std::string& folder) {
  if (::access(folder.c_str(), W_OK | X_OK) == 0) return ok();
  return Error::from_errno("Cannot write in the folder " + folder);
}

// Checks whether a checkpoint store's path is writable. The first writer creates the store's folder, but not
// its parent.
Result<void> check_writable(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0) {
    if (!S_ISDIR(info.st_mode)) return Error(ErrorCode::kRefused, path + " is not a folder");
    return may_write(path);
  }
  if (errno != ENOENT) return Error::from_errno("Cannot inspect the folder " + path);
  const std::size_t slash = path.find_last_of('/');
  const std::string parent = slash == 0 ? "/" : path.substr(0, slash);
  if (::stat(parent.c_str(), &info) != 0) return Error::from_errno("Cannot inspect the folder " + parent);
  return may_write(parent);
}

// Creates a private folder. `shared` means that others may write there, if they cannot rename or remove
// entries of other users.
Result<void> make_private(const std::string& path, bool shared) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    return Error::from_errno("Cannot create the folder " + path);
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return Error::from_errno("Cannot inspect the folder " + path);
  const bool is_own = info.st_uid == ::geteuid() || info.st_uid == 0;
  const bool is_closed = (info.st_mode & 0022) == 0 || (shared && (info.st_mode & S_ISVTX) != 0);
  if (S_ISDIR(info.st_mode) && is_own && is_closed) return ok();
  return Error(ErrorCode::kRefused,
               path + " is not a folder that only this user or root may change: remove it");
}

}  // namespace

Result<void> claim_memory_folder(const std::string& folder) {
  CKPT_TRYV(make_private(folder.substr(0, folder.find_last_of('/')), true));
  return make_private(folder, false);
}

checkpoint_store::Route CheckpointStorePlace::route() const {
  checkpoint_store::Route route;
  route.folder = path;
  route.limit_bytes = limit_bytes;
  route.memory = access.memory;
  route.memory_limit_bytes = access.memory_limit_bytes;
  route.peer_address = access.peer_address;
  route.peer_token = access.peer_token;
  return route;
}

Result<std::uint64_t> bytes_of_others(const CheckpointStorePlace& place, const std::string& image_job) {
  checkpoint_store::Tiers tiers;
  tiers.disk = place.path;
  tiers.memory = place.access.memory;
  checkpoint_store::TieredFiles files(std::move(tiers));
  std::uint64_t bytes = 0;
  auto jobs = files.list(place.path + "/jobs");
  if (!jobs && jobs.error().code() == ErrorCode::kNotFound) return bytes;
  if (!jobs) return std::move(jobs).error();
  for (const checkpoint_store::FolderEntry& job : *jobs) {
    if (!job.is_folder || job.name == image_job) continue;
    for (const char* part : {"/packs", "/versions"}) {
      auto entries = files.list(place.path + "/jobs/" + job.name + part);
      if (!entries) continue;  // the folder was removed in the meantime
      for (const checkpoint_store::FolderEntry& entry : *entries) bytes += entry.bytes;
    }
  }
  return bytes;
}

Result<std::vector<wire::CheckpointStoreContents>> list_checkpoint_store(const CheckpointStorePlace& place,
                                                                         const std::string& image_job) {
  wire::CheckpointStoreContents head;
  head.folder = place.word;
  head.limit_bytes = place.limit_bytes;
  head.image_job = image_job;
  auto opened = checkpoint_store::open_checkpoint_store(place.route(), false);
  if (!opened && opened.error().code() == ErrorCode::kNotFound) return parts_of(std::move(head), {});
  if (!opened) return std::move(opened).error();
  checkpoint_store::CheckpointStore& checkpoint_store = *opened->checkpoint_store;
  head.used_bytes = checkpoint_store.used_bytes();
  CKPT_TRY(jobs, checkpoint_store.job_names());
  std::vector<wire::ImageRow> rows;
  for (const std::string& job : jobs) {
    if (!image_job.empty() && job != image_job) continue;
    // An entry that is removed in the meantime is left out, and the other entries are listed.
    if (auto listed = list_job(place, checkpoint_store, job, rows); !listed)
      spdlog::warn("checkpoint store {}: job {} not listed: reason {}", place.path, job,
                   listed.error().to_string());
  }
  retain_newest_of_each(rows);
  return parts_of(std::move(head), std::move(rows));
}

Result<void> perform(const CheckpointStorePlace& place, const wire::CheckpointStoreOrder& order) {
  if (order.act == wire::CheckpointStoreAct::kList) return ok();
  if (order.act == wire::CheckpointStoreAct::kCheck) return check_writable(place.path);
  CKPT_TRY(opened, checkpoint_store::open_checkpoint_store(place.route(), true));
  const auto& checkpoint_store = opened.checkpoint_store;
  if (order.act == wire::CheckpointStoreAct::kRemoveJob) return checkpoint_store->remove_job(order.image_job);
  CKPT_TRYV(checkpoint_store->remove_version(order.image_job, order.version));
  CKPT_TRYV(checkpoint_store->collect(order.image_job));
  return ok();
}

Result<StoredVersion> read_version(const CheckpointStorePlace& place, const std::string& image_job,
                                   std::uint64_t version) {
  CKPT_TRY(opened, checkpoint_store::open_checkpoint_store(place.route(), false));
  const auto& checkpoint_store = opened.checkpoint_store;
  std::optional<std::uint64_t> number;
  if (version != 0) number = version;
  auto reader = checkpoint_store->open_version(image_job, number);
  // If the newest version is damaged, the description of the newest complete version is used until the
  // version to restore is known.
  if (!reader && reader.error().code() == ErrorCode::kCorrupt)
    reader = checkpoint_store->open_version(image_job);
  if (!reader) return std::move(reader).error();
  const checkpoint_store::Version& found = (*reader)->version();
  CKPT_TRY(job, image::decode_stored_job(found.job_record));
  StoredVersion stored;
  stored.number = found.number;
  stored.barrier_ms = barrier_of(found);
  stored.job = std::move(job);
  return stored;
}

}  // namespace ckpt::agent::protect
