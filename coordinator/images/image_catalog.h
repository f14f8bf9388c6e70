// SPDX-License-Identifier: Apache-2.0
// The contents of the checkpoint stores, as their nodes last reported them. They are stored durably, so that
// the images of a disconnected node remain known. A checkpoint store is (node, ""), the node's own, or (node,
// folder), a folder that should be the same on every node. If several nodes have listed a folder, the newest
// list with the job applies. An unchanged list is not stored again.
// Threads: one. Ownership: the coordinator's. Errors: a list that cannot be stored is logged, and retried
// with the next list of that checkpoint store; the list in memory applies.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "coordinator/images/image_cursor.h"
#include "coordinator/state/listeners.h"
#include "coordinator/state/restored.h"
#include "coordinator/state/store.h"
#include "libckpt/record/fields.h"

namespace ckpt::coordinator {

// Returns the job's name ("train") from its name in the image's checkpoint store ("train.j3.CLUSTER").
[[nodiscard]] std::string name_in(const Image& image);
struct ImageId {
  JobId job = 0;
  std::uint64_t version = 0;
  std::string where;  // a node or a folder; empty: any place
};
[[nodiscard]] std::optional<ImageId> parse_image_id(std::string_view text);

// A version in a checkpoint store, as its node listed it, and other known facts about the version.
struct CatalogRow {
  wire::ImageRow row;
  std::int64_t pause_ns = -1;
  std::int64_t seen_ms = 0;  // the time of listing; later lists have higher values
  std::int64_t job_ended_ms = 0;
  std::string suspect;        // why the version is suspect, as of the last check of its job
  std::int64_t order_ms = 0;  // the version's barrier time, but never earlier than that of an older version
                              // in the same checkpoint store
};
template <std::same_as<CatalogRow> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::inlined(&T::row), record::field("pause_ns", &T::pause_ns),
                        record::later("seen_ms", &T::seen_ms),
                        record::later("job_ended_ms", &T::job_ended_ms),
                        record::later("suspect", &T::suspect), record::not_kept(&T::order_ms));
}

class ImageCatalog {
 public:
  // A function that returns why an image of that incarnation, with that barrier time, is suspect. nullopt
  // means that the job is no longer known and the last answer applies.
  using DoubtOf = std::function<std::optional<std::string>(JobId, Incarnation, std::int64_t barrier_ms)>;
  ImageCatalog(Store& store, DoubtOf doubt_of) : store_(store), doubt_of_(std::move(doubt_of)) {}

  Result<void> load();
  // Listeners for a node and a cluster id. The node's checkpoint store shows that this cluster had that id
  // before its store was lost.
  using Recognised = Listeners<const std::string&, const std::string&>;
  [[nodiscard]] Recognised& recognised() { return recognised_; }
  // Permits or forbids recognizing the cluster's id from images, which is permitted only during a recovery.
  // Lists received earlier are evaluated when the recovery begins.
  void let_recognise(bool may);
  // Returns the job's name in a checkpoint store. No job of another cluster has the same name.
  [[nodiscard]] std::string image_job_of(const Job& job) const;

  // Replaces a node's whole list of a checkpoint store, or of one job in it. Returns newly damaged images.
  std::vector<Image> apply(const std::string& node, const wire::CheckpointStoreContents& contents);
  // Stores the measurements of a snapshot. They may arrive before or after the list that has the snapshot.
  void measured(const std::string& node, const wire::SnapshotReport& report);
  // Removes the job's images from the lists that other nodes have of the folder, because these lists are out
  // of date.
  void removed(const std::string& node, const std::string& folder, const std::string& image_job);

  // Returns this cluster's images by job, oldest first. They are ordered by the coordinator's own count.
  // Images without such a number are ordered by incarnation and barrier. Within a checkpoint store the order
  // is always by version.
  [[nodiscard]] std::vector<ListedImage> list() const;
  [[nodiscard]] std::vector<ListedImage> list(JobId job) const;
  // The next `limit` entries of list() after `after`, and whether there are more. The time depends only on
  // the images in the page and the other images of their jobs.
  struct Page {
    std::vector<ListedImage> images;
    bool more = false;
  };
  [[nodiscard]] Page page(const std::optional<ImageCursor>& after, std::size_t limit) const;
  using Predicate = std::function<bool(const Image&)>;
  // Returns the newest whole image of the job that satisfies `fits`.
  [[nodiscard]] std::optional<Image> newest(JobId job, const Predicate& fits) const;
  // Finds an image. Returns kNotFound, or kRefused if the id matches several images.
  [[nodiscard]] Result<ListedImage> find(const ImageId& id) const;
  // Returns whether the node has listed the image as whole.
  [[nodiscard]] bool is_whole_at(const std::string& node, const Image& image) const;
  // Returns the newest version of the job in that checkpoint store, or 0 if there is none.
  [[nodiscard]] std::uint64_t last_version(const std::string& node, const std::string& folder,
                                           const std::string& image_job) const;
  // Returns how many versions the image's job has in the image's checkpoint store.
  [[nodiscard]] std::size_t count(const Image& image) const;
  // A function that returns when a job ended, or 0 if it has not ended. nullopt means that the job is no
  // longer known and the last answer applies.
  using EndOf = std::function<std::optional<std::int64_t>(JobId)>;
  void note_ends(const EndOf& end_of);
  // Returns the highest sequence number of any image (image_numbers.h).
  [[nodiscard]] std::uint64_t last_sequence() const;

 private:
  using Row = CatalogRow;
  struct CheckpointStore {
    std::vector<Row> rows;  // the listed versions, ordered by job, its name in the checkpoint store, and
                            // version
    bool stored = false;    // true if the last change is stored
  };
  using Rows = std::span<const Row>;
  using Key = std::pair<std::string, std::string>;  // node and folder of a checkpoint store

  // Checks whether the node of `key` stays within its limits if this list has `images` images. The limits are
  // kMaxCheckpointStores lists, kMaxListedImages images in all its lists, and kLongestText bytes of the
  // folder's path.
  [[nodiscard]] bool has_room(const Key& key, std::size_t images) const;
  void recognise_cluster(const std::string& node, const wire::CheckpointStoreContents& contents);
  void store_for_later(const Key& key, const wire::CheckpointStoreContents& contents);
  void adopt(const std::string& node, const std::string& cluster);
  [[nodiscard]] JobId job_in(std::string_view image_job) const;
  [[nodiscard]] bool is_ours(const wire::ImageRow& row) const;
  // Returns the pause from another node's list of a shared folder. A negative value means that the pause is
  // not known.
  [[nodiscard]] std::int64_t pause_in(const std::string& folder, const wire::ImageRow& reported) const;
  [[nodiscard]] const Row* find_row(const Key& key, const std::string& image_job,
                                    std::uint64_t version) const;
  [[nodiscard]] static Rows rows_of(const CheckpointStore& checkpoint_store, JobId job);
  [[nodiscard]] Row row_of(const Key& key, const wire::ImageRow& reported);
  static void put_in_order(std::vector<Row>& rows);
  static bool same_lists(Rows a, Rows b);
  [[nodiscard]] bool is_contradicted(const Key& key, Rows rows) const;
  [[nodiscard]] std::optional<JobId> first_job_from(JobId job) const;
  void add(std::vector<ListedImage>& listed, std::optional<JobId> job) const;
  void save(const Key& key, CheckpointStore& checkpoint_store);

  [[nodiscard]] std::string suspect_of(const Row& row) const;

  Store& store_;
  DoubtOf doubt_of_;
  Recognised recognised_;
  std::string cluster_;
  bool cluster_settled_ = false;  // true once images of this cluster are known
  bool may_recognise_ = true;
  // lists that arrived while the cluster's id could not be recognized
  std::map<std::pair<std::string, std::string>, wire::CheckpointStoreContents> unrecognised_;
  std::map<Key, CheckpointStore> checkpoint_stores_;
  std::int64_t last_seen_ms_ = 0;
  // measured pauses that no list has yet
  std::map<std::tuple<Key, std::string, std::uint64_t>, std::int64_t> measured_;
};

}  // namespace ckpt::coordinator
