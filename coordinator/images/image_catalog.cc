// SPDX-License-Identifier: Apache-2.0
#include "coordinator/images/image_catalog.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <utility>

#include "coordinator/images/contents_parts.h"
#include "coordinator/images/image_numbers.h"
#include "libckpt/base/clock.h"
#include "libckpt/protocol/wire/ids.h"
#include "libckpt/record/document.h"

namespace ckpt::coordinator {
namespace {

constexpr std::size_t kMaxMeasured = 1000;
constexpr std::size_t kMaxCheckpointStores = 256;  // maximum number of checkpoint stores of one node
constexpr std::size_t kLongestText = 4096;         // maximum length of a folder's path or a name in bytes

// The list of one checkpoint store, in the form that the coordinator's store records.
struct CheckpointStoreDocument {
  std::int64_t seen_ms = 0;
  std::vector<CatalogRow> images;
};
template <std::same_as<CheckpointStoreDocument> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("seen_ms", &T::seen_ms), record::field("images", &T::images));
}

Image image_of(const std::string& node, const std::string& folder, const wire::ImageRow& row) {
  Image image;
  image.node = node;
  image.folder = folder;
  image.image_job = row.image_job;
  image.job = row.job;
  image.version = row.version;
  image.sequence = row.sequence;
  image.set = row.set;
  image.barrier_ms = row.created_ms;
  image.state_bytes = row.state_bytes;
  image.gpu_model = row.gpu_model;
  image.incarnation = row.incarnation;
  return image;
}

std::optional<std::uint64_t> number_of(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool good = failure == std::errc{} && end == text.data() + text.size() && value != 0;
  return good ? std::optional(value) : std::nullopt;
}

}  // namespace

std::string name_in(const Image& image) {
  return image.image_job.substr(0, image.image_job.rfind("." + job_text(image.job) + "."));
}

std::optional<ImageId> parse_image_id(std::string_view text) {
  const auto at = text.find('@');
  const std::string_view head = text.substr(0, at);
  const auto point = head.find(".v");
  if (point == std::string_view::npos) return std::nullopt;
  const auto job = parse_job_id(head.substr(0, point));
  const auto version = number_of(head.substr(point + 2));
  if (!job || !version || (at != std::string_view::npos && at + 1 == text.size())) return std::nullopt;
  ImageId id;
  id.job = *job;
  id.version = *version;
  if (at != std::string_view::npos) id.where = text.substr(at + 1);
  return id;
}

Result<void> ImageCatalog::load() {
  CKPT_TRY(cluster, store_.cluster_id());
  cluster_ = std::move(cluster);
  CKPT_TRY(rows, store_.checkpoint_stores());
  for (const CheckpointStoreRow& stored : rows) {
    CKPT_TRY(document, record::parse_document<CheckpointStoreDocument>(
                           stored.document, "The stored list of the checkpoint store of " + stored.node));
    CheckpointStore& checkpoint_store = checkpoint_stores_[Key(stored.node, stored.folder)];
    checkpoint_store.rows = std::move(document.images);
    for (Row& row : checkpoint_store.rows) {
      if (row.seen_ms == 0) row.seen_ms = document.seen_ms;
      last_seen_ms_ = std::max(last_seen_ms_, row.seen_ms);
    }
    put_in_order(checkpoint_store.rows);
    checkpoint_store.stored = true;
  }
  return ok();
}

void ImageCatalog::save(const Key& key, CheckpointStore& checkpoint_store) {
  CheckpointStoreRow stored;
  stored.node = key.first;
  stored.folder = key.second;
  CheckpointStoreDocument document{last_seen_ms_, std::move(checkpoint_store.rows)};
  stored.document = record::to_text(document);
  checkpoint_store.rows = std::move(document.images);
  const auto put = store_.put(stored);
  checkpoint_store.stored = put.has_value();
  if (!put)
    spdlog::error("the contents of the checkpoint store of {} were not stored: {}", key.first,
                  put.error().to_string());
}

std::string ImageCatalog::image_job_of(const Job& job) const {
  return job.spec.name + "." + job_text(job.id) + "." + cluster_;
}

// Returns the job of a name in a checkpoint store ("train.j3.CLUSTER"), or 0 if the job is of another
// cluster.
JobId ImageCatalog::job_in(std::string_view image_job) const {
  const std::string end = "." + cluster_;
  if (!image_job.ends_with(end)) return 0;
  image_job.remove_suffix(end.size());
  const auto dot = image_job.rfind('.');
  return dot == std::string_view::npos ? 0 : parse_job_id(image_job.substr(dot + 1)).value_or(0);
}

bool ImageCatalog::is_ours(const wire::ImageRow& row) const {
  return row.job != 0 && row.version != 0 &&
         row.image_job.ends_with("." + job_text(row.job) + "." + cluster_);
}

ImageCatalog::Rows ImageCatalog::rows_of(const CheckpointStore& checkpoint_store, JobId job) {
  const auto begin = std::lower_bound(checkpoint_store.rows.begin(), checkpoint_store.rows.end(), job,
                                      [](const Row& row, JobId id) { return row.row.job < id; });
  const auto end = std::upper_bound(begin, checkpoint_store.rows.end(), job,
                                    [](JobId id, const Row& row) { return id < row.row.job; });
  return {begin, end};
}

const ImageCatalog::Row* ImageCatalog::find_row(const Key& key, const std::string& image_job,
                                                std::uint64_t version) const {
  const auto checkpoint_store = checkpoint_stores_.find(key);
  if (checkpoint_store == checkpoint_stores_.end()) return nullptr;
  const Rows rows = rows_of(checkpoint_store->second, job_in(image_job));
  const auto row = std::find_if(rows.begin(), rows.end(), [&](const Row& known) {
    return known.row.image_job == image_job && known.row.version == version;
  });
  return row == rows.end() ? nullptr : &*row;
}

// Orders the rows of one checkpoint store. Within a store, versions define the order. A clock that was set
// back between two versions does not affect it.
void ImageCatalog::put_in_order(std::vector<Row>& rows) {
  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return std::tie(a.row.job, a.row.image_job, a.row.version) <
           std::tie(b.row.job, b.row.image_job, b.row.version);
  });
  const Row* before = nullptr;
  for (Row& row : rows) {
    row.order_ms = row.row.created_ms;
    if (before != nullptr && before->row.image_job == row.row.image_job && row.order_ms != 0)
      row.order_ms = std::max(row.order_ms, before->order_ms);
    if (row.order_ms != 0) before = &row;
  }
}

ImageCatalog::Row ImageCatalog::row_of(const Key& key, const wire::ImageRow& reported) {
  Row row;
  row.row = reported;
  row.seen_ms = last_seen_ms_;
  if (row.row.sequence > kMaxImageNumber) row.row.sequence = 0;
  if (const Row* known = find_row(key, reported.image_job, reported.version)) {
    row.pause_ns = known->pause_ns;
    row.job_ended_ms = known->job_ended_ms;
    row.suspect = known->suspect;
  }
  row.suspect = suspect_of(row);
  const auto pause = measured_.find({key, reported.image_job, reported.version});
  if (pause == measured_.end()) {
    if (row.pause_ns < 0) row.pause_ns = pause_in(key.second, reported);
    return row;
  }
  row.pause_ns = pause->second;
  measured_.erase(pause);
  return row;
}

std::int64_t ImageCatalog::pause_in(const std::string& folder, const wire::ImageRow& reported) const {
  if (folder.empty()) return -1;
  for (const auto& [key, checkpoint_store] : checkpoint_stores_) {
    if (key.second != folder) continue;
    const Row* known = find_row(key, reported.image_job, reported.version);
    if (known != nullptr && known->pause_ns >= 0) return known->pause_ns;
  }
  return -1;
}

// Recognizes the cluster's id from a node's own checkpoint store, which has images of its own cluster only. A
// coordinator's store without any ordered images is new, or was lost.
void ImageCatalog::recognise_cluster(const std::string& node, const wire::CheckpointStoreContents& contents) {
  if (cluster_settled_ || !contents.folder.empty()) return;
  std::string found;
  for (const wire::ImageRow& row : contents.images) {
    if (is_ours(row)) {
      cluster_settled_ = true;
      unrecognised_.clear();
      return;
    }
    const std::string middle = "." + job_text(row.job) + ".";
    const auto at = row.image_job.rfind(middle);
    if (row.job == 0 || at == std::string::npos) continue;
    const std::string cluster = row.image_job.substr(at + middle.size());
    const bool plain = cluster.size() == cluster_.size() &&
                       cluster.find_first_not_of("0123456789abcdef") == std::string::npos;
    if (!plain || (!found.empty() && found != cluster))
      return;  // the names contain no cluster id, or ids of
               // several clusters
    found = cluster;
  }
  if (!found.empty() && may_recognise_) adopt(node, found);
}

// Stores a list for later. The images in the list are not known to belong to this cluster until the cluster's
// id is recognized.
void ImageCatalog::store_for_later(const Key& key, const wire::CheckpointStoreContents& contents) {
  if (!contents.image_job.empty()) return;
  std::size_t images = contents.images.size();
  for (const auto& [known, list] : unrecognised_)
    if (known.first == key.first && known != key) images += list.images.size();
  if (images <= kMaxListedImages) unrecognised_[key] = contents;
}

void ImageCatalog::let_recognise(bool may) {
  may_recognise_ = may;
  if (!may) return;
  // The list of a node's own checkpoint store, whose folder is empty, is applied before those of shared
  // folders.
  auto lists = std::exchange(unrecognised_, {});
  for (const bool own : {true, false})
    for (const auto& [key, contents] : lists)
      if (key.second.empty() == own) (void)apply(key.first, contents);
}

void ImageCatalog::adopt(const std::string& node, const std::string& found) {
  auto adopted = store_.adopt_cluster_id(found);
  if (!adopted)
    return spdlog::error("the cluster's id {} was not stored: {}", found, adopted.error().to_string());
  cluster_settled_ = true;
  if (!*adopted) return;
  cluster_ = found;
  recognised_.notify(node, found);
}

std::vector<Image> ImageCatalog::apply(const std::string& node,
                                       const wire::CheckpointStoreContents& contents) {
  const Key key(node, contents.folder);
  recognise_cluster(node, contents);
  if (!has_room(key, contents.images.size())) {
    spdlog::warn("a list of {} images in {} of {} is ignored: the node has reported too many images",
                 contents.images.size(), contents.folder.substr(0, kLongestText), node);
    return {};
  }
  if (!cluster_settled_ && !may_recognise_) store_for_later(key, contents);
  last_seen_ms_ = std::max(last_seen_ms_ + 1, wall_clock_ms());
  std::vector<Image> damaged;
  std::vector<Row> rows;
  for (wire::ImageRow reported : contents.images) {
    // A node that cannot read a version knows only the job's name in the checkpoint store. So the job's id is
    // derived from that name.
    if (reported.damaged && reported.job == 0) reported.job = job_in(reported.image_job);
    const bool asked = contents.image_job.empty() || reported.image_job == contents.image_job;
    if (!is_ours(reported) || !asked) continue;
    if (reported.image_job.size() > kLongestText || reported.gpu_model.size() > kLongestText) continue;
    const Row* known = find_row(key, reported.image_job, reported.version);
    if (reported.damaged && (known == nullptr || !known->row.damaged))
      damaged.push_back(image_of(node, contents.folder, reported));
    rows.push_back(row_of(key, reported));
  }
  put_in_order(rows);
  CheckpointStore& checkpoint_store = checkpoint_stores_[key];
  const auto listed = std::stable_partition(
      checkpoint_store.rows.begin(), checkpoint_store.rows.end(),
      [&](const Row& row) { return !contents.image_job.empty() && row.row.image_job != contents.image_job; });
  const std::vector<Row> before(std::make_move_iterator(listed),
                                std::make_move_iterator(checkpoint_store.rows.end()));
  checkpoint_store.rows.erase(listed, checkpoint_store.rows.end());
  const bool differs = !checkpoint_store.stored || !same_lists(before, rows) || is_contradicted(key, before);
  std::move(rows.begin(), rows.end(), std::back_inserter(checkpoint_store.rows));
  put_in_order(checkpoint_store.rows);
  if (differs) save(key, checkpoint_store);
  return damaged;
}

bool ImageCatalog::has_room(const Key& key, std::size_t images) const {
  std::size_t checkpoint_stores = 1;
  for (const auto& [known, checkpoint_store] : checkpoint_stores_) {
    if (known.first != key.first || known == key) continue;
    ++checkpoint_stores;
    images += checkpoint_store.rows.size();
  }
  return checkpoint_stores <= kMaxCheckpointStores && images <= kMaxListedImages &&
         key.second.size() <= kLongestText;
}

// Checks whether two lists are equal, apart from the time of listing.
bool ImageCatalog::same_lists(Rows a, Rows b) {
  const auto reported = [](const Row& r) {
    return std::tie(r.row.image_job, r.row.job, r.row.version, r.row.parent, r.row.created_ms,
                    r.row.incarnation, r.row.state_bytes, r.row.written_bytes, r.row.damaged, r.row.gpu_model,
                    r.row.memory_bytes, r.row.disk_bytes, r.row.sequence, r.row.set, r.pause_ns,
                    r.job_ended_ms, r.suspect);
  };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](const Row& x, const Row& y) { return reported(x) == reported(y); });
}

// Checks whether a later list of the same folder from another node differs for a job. The order of lists also
// matters after a restart.
bool ImageCatalog::is_contradicted(const Key& key, Rows rows) const {
  if (key.second.empty()) return false;
  for (auto begin = rows.begin(); begin != rows.end();) {
    const auto end = std::find_if(begin, rows.end(),
                                  [&](const Row& row) { return row.row.image_job != begin->row.image_job; });
    for (const auto& [other, checkpoint_store] : checkpoint_stores_) {
      if (other.second != key.second || other.first == key.first) continue;
      std::vector<Row> its;
      for (const Row& row : rows_of(checkpoint_store, begin->row.job))
        if (row.row.image_job == begin->row.image_job) its.push_back(row);
      const bool later = !its.empty() && its.front().seen_ms > begin->seen_ms;
      if (later && !same_lists({begin, end}, its)) return true;
    }
    begin = end;
  }
  return false;
}

std::string ImageCatalog::suspect_of(const Row& row) const {
  return doubt_of_(row.row.job, row.row.incarnation, row.row.created_ms).value_or(row.suspect);
}

void ImageCatalog::measured(const std::string& node, const wire::SnapshotReport& report) {
  const Key key(node, report.folder);
  if (find_row(key, report.image_job, report.version) == nullptr) {
    if (measured_.size() >= kMaxMeasured) measured_.erase(measured_.begin());
    measured_[{key, report.image_job, report.version}] = report.pause_ns;
    return;
  }
  CheckpointStore& checkpoint_store = checkpoint_stores_[key];
  bool differs = false;
  for (Row& row : checkpoint_store.rows) {
    if (row.row.image_job != report.image_job || row.row.version != report.version) continue;
    differs = differs || row.pause_ns != report.pause_ns;
    row.pause_ns = report.pause_ns;
  }
  if (differs) save(key, checkpoint_store);
}

void ImageCatalog::removed(const std::string& node, const std::string& folder, const std::string& image_job) {
  if (folder.empty()) return;
  for (auto& [key, checkpoint_store] : checkpoint_stores_) {
    if (key.second != folder || key.first == node) continue;
    if (std::erase_if(checkpoint_store.rows,
                      [&](const Row& row) { return row.row.image_job == image_job; }) != 0)
      save(key, checkpoint_store);
  }
}

void ImageCatalog::add(std::vector<ListedImage>& listed, std::optional<JobId> job) const {
  // The newest list of each job in a folder: its time, and the node that made it.
  std::map<std::pair<std::string, std::string>, std::pair<std::int64_t, std::string>> newest;
  for (const auto& [key, checkpoint_store] : checkpoint_stores_) {
    if (key.second.empty()) continue;
    for (const Row& row : job ? rows_of(checkpoint_store, *job) : Rows(checkpoint_store.rows)) {
      auto& best = newest[{key.second, row.row.image_job}];
      best = std::max(best, std::pair(row.seen_ms, key.first));
    }
  }
  for (const auto& [key, checkpoint_store] : checkpoint_stores_) {
    for (const Row& row : job ? rows_of(checkpoint_store, *job) : Rows(checkpoint_store.rows)) {
      if (!key.second.empty() && newest.at({key.second, row.row.image_job}).second != key.first) continue;
      ListedImage& entry = listed.emplace_back();
      entry.image = image_of(key.first, key.second, row.row);
      entry.image.suspect = suspect_of(row);
      entry.job_ended_ms = row.job_ended_ms;
      entry.order_ms = row.order_ms;
      entry.parent = row.row.parent;
      entry.incarnation = row.row.incarnation;
      entry.written_bytes = row.row.written_bytes;
      entry.damaged = row.row.damaged;
      entry.pause_ns = row.pause_ns;
      entry.memory_bytes = row.row.memory_bytes;
      entry.disk_bytes = row.row.disk_bytes;
    }
  }
  std::stable_sort(listed.begin(), listed.end(), is_older);
}

std::vector<ListedImage> ImageCatalog::list() const {
  std::vector<ListedImage> listed;
  add(listed, std::nullopt);
  return listed;
}

std::vector<ListedImage> ImageCatalog::list(JobId job) const {
  std::vector<ListedImage> listed;
  add(listed, job);
  return listed;
}

// Returns the lowest id, from `job` on, of a job with images, or nullopt if there is none.
std::optional<JobId> ImageCatalog::first_job_from(JobId job) const {
  std::optional<JobId> first;
  for (const auto& [key, checkpoint_store] : checkpoint_stores_) {
    const auto row = std::lower_bound(checkpoint_store.rows.begin(), checkpoint_store.rows.end(), job,
                                      [](const Row& known, JobId id) { return known.row.job < id; });
    if (row != checkpoint_store.rows.end()) first = std::min(first.value_or(row->row.job), row->row.job);
  }
  return first;
}

ImageCatalog::Page ImageCatalog::page(const std::optional<ImageCursor>& after, std::size_t limit) const {
  Page page;
  auto job = first_job_from(after ? after->job : 0);
  while (job) {
    for (ListedImage& listed : list(*job)) {
      if (after && !is_behind(listed, *after)) continue;
      page.more = page.images.size() == limit;
      if (page.more) return page;
      page.images.push_back(std::move(listed));
    }
    job = first_job_from(*job + 1);
  }
  return page;
}

std::optional<Image> ImageCatalog::newest(JobId job, const Predicate& fits) const {
  std::optional<Image> found;
  for (const ListedImage& listed : list(job)) {
    if (!listed.damaged && fits(listed.image)) found = listed.image;
  }
  return found;
}

std::size_t ImageCatalog::count(const Image& image) const {
  const auto checkpoint_store = checkpoint_stores_.find(Key(image.node, image.folder));
  if (checkpoint_store == checkpoint_stores_.end()) return 0;
  const Rows rows = rows_of(checkpoint_store->second, image.job);
  return static_cast<std::size_t>(std::count_if(
      rows.begin(), rows.end(), [&](const Row& row) { return row.row.image_job == image.image_job; }));
}

void ImageCatalog::note_ends(const EndOf& end_of) {
  for (auto& [key, checkpoint_store] : checkpoint_stores_) {
    bool differs = false;
    JobId job = 0;
    std::optional<std::int64_t> ended_ms;
    for (Row& row : checkpoint_store.rows) {
      if (row.row.job != job) ended_ms = end_of(job = row.row.job);
      const std::string suspect = suspect_of(row);
      if (!ended_ms || (row.job_ended_ms == *ended_ms && row.suspect == suspect)) continue;
      row.job_ended_ms = *ended_ms;
      row.suspect = suspect;
      differs = true;
    }
    if (differs) save(key, checkpoint_store);
  }
}

std::uint64_t ImageCatalog::last_sequence() const {
  std::uint64_t last = 0;
  for (const auto& [key, checkpoint_store] : checkpoint_stores_) {
    for (const Row& row : checkpoint_store.rows) last = std::max(last, row.row.sequence);
  }
  return last;
}

Result<ListedImage> ImageCatalog::find(const ImageId& id) const {
  std::vector<ListedImage> found;
  for (const ListedImage& listed : wire::id_tag(id.job) == 0 ? list() : list(id.job)) {
    const Image& image = listed.image;
    const bool there = id.where.empty() || id.where == (image.folder.empty() ? image.node : image.folder);
    if (wire::may_mean(id.job, image.job) && image.version == id.version && there) found.push_back(listed);
  }
  const std::string name = job_text(id.job) + ".v" + std::to_string(id.version);
  if (found.empty())
    return Error(ErrorCode::kNotFound,
                 "There is no image " + name + (id.where.empty() ? "" : "@" + id.where) + ": see `images`");
  if (found.size() > 1)
    return Error(ErrorCode::kRefused, "There are several images " + name + ": use the id of one, like " +
                                          image_text(found.front().image));
  return found.front();
}

bool ImageCatalog::is_whole_at(const std::string& node, const Image& image) const {
  const Row* row = find_row(Key(node, image.folder), image.image_job, image.version);
  return row != nullptr && !row->row.damaged;
}

std::uint64_t ImageCatalog::last_version(const std::string& node, const std::string& folder,
                                         const std::string& image_job) const {
  const auto checkpoint_store = checkpoint_stores_.find(Key(node, folder));
  if (checkpoint_store == checkpoint_stores_.end()) return 0;
  std::uint64_t last = 0;
  for (const Row& row : rows_of(checkpoint_store->second, job_in(image_job))) {
    if (row.row.image_job == image_job) last = std::max(last, row.row.version);
  }
  return last;
}

}  // namespace ckpt::coordinator
