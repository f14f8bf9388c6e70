// SPDX-License-Identifier: Apache-2.0
// The contents of the vaults, as their nodes last reported them. Kept in the store, so that the images of a
// node that is away are still known. A vault is (node, ""), the node's own, or (node, folder): a folder that
// is meant to be the same on every node. Of a folder that several nodes have listed, the newest list that has
// the job counts. A list without a change is not stored again.
// Threads: one. Ownership: the coordinator's. Errors: a list that cannot be stored is logged, and tried
// again with the next list of that vault; memory counts.
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

// The job's name ("train"), from the name that it has in the image's vault ("train.j3.CLUSTER").
[[nodiscard]] std::string name_in(const Image& image);
struct ImageId {
  JobId job = 0;
  std::uint64_t version = 0;
  std::string where;  // a node, or a folder; empty: any
};
[[nodiscard]] std::optional<ImageId> parse_image_id(std::string_view text);

// A version in a vault, as its node listed it, and what else is known about it.
struct CatalogRow {
  wire::ImageRow row;
  std::int64_t pause_ns = -1;
  std::int64_t seen_ms = 0;  // when it was listed; later lists have higher ones
  std::int64_t job_ended_ms = 0;
  std::string suspect;        // as of the last look at its job
  std::int64_t order_ms = 0;  // its barrier, but not before one of an older version in the same vault
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
  // Why an image is suspect, that was taken of that incarnation at that barrier; nullopt: the job is not known any
  // more, and the last answer holds.
  using DoubtOf = std::function<std::optional<std::string>(JobId, Incarnation, std::int64_t barrier_ms)>;
  ImageCatalog(Store& store, DoubtOf doubt_of) : store_(store), doubt_of_(std::move(doubt_of)) {}

  Result<void> load();
  // A node whose vault shows that this cluster had another id before its store was lost, and that id.
  using Recognised = Listeners<const std::string&, const std::string&>;
  [[nodiscard]] Recognised& recognised() { return recognised_; }
  // Outside of a recovery no node's images say which cluster this is; what they would have said counts once it begins.
  void let_recognise(bool may);
  // The job's name in a vault: no other cluster's job has it.
  [[nodiscard]] std::string vault_job_of(const Job& job) const;

  // Takes a node's whole list of a vault, or of one job in it. Returns newly damaged images.
  std::vector<Image> take(const std::string& node, const wire::VaultContents& contents);
  // The measurements of a snapshot; before or after the list that has it.
  void measured(const std::string& node, const wire::SnapshotReport& report);
  // The job's images have been removed there: older lists of other nodes are wrong.
  void removed(const std::string& node, const std::string& folder, const std::string& vault_job);

  // This cluster's images, by job, oldest first: by the coordinator's own count, then, for those without, by
  // incarnation and barrier, but in a vault always by version.
  [[nodiscard]] std::vector<ListedImage> list() const;
  [[nodiscard]] std::vector<ListedImage> list(JobId job) const;
  // The next `limit` of list() behind `after`, and whether there are more. Costs what the page holds, and its
  // jobs' other images.
  struct Page {
    std::vector<ListedImage> images;
    bool more = false;
  };
  [[nodiscard]] Page page(const std::optional<ImageCursor>& after, std::size_t limit) const;
  using Predicate = std::function<bool(const Image&)>;
  // The newest whole image of the job that fits.
  [[nodiscard]] std::optional<Image> newest(JobId job, const Predicate& fits) const;
  // kNotFound; kRefused if the id leaves open which.
  [[nodiscard]] Result<ListedImage> find(const ImageId& id) const;
  // The node has listed it, whole.
  [[nodiscard]] bool is_whole_at(const std::string& node, const Image& image) const;
  // Its newest version there, 0 if there is none.
  [[nodiscard]] std::uint64_t last_version(const std::string& node, const std::string& folder,
                                           const std::string& vault_job) const;
  // How many versions the job of this one has in its vault.
  [[nodiscard]] std::size_t count(const Image& image) const;
  // When a job ended, 0 if it has not; nullopt: it is not known any more, and the last answer about it
  // holds.
  using EndOf = std::function<std::optional<std::int64_t>(JobId)>;
  void note_ends(const EndOf& end_of);
  // The highest that any image has (image_numbers.h).
  [[nodiscard]] std::uint64_t last_sequence() const;

 private:
  using Row = CatalogRow;
  struct Vault {
    std::vector<Row> rows;  // by job, its name there, version
    bool stored = false;    // as of its last change
  };
  using Rows = std::span<const Row>;
  using Key = std::pair<std::string, std::string>;  // node, folder

  // A node's lists are no more than kMaxVaults, with kMaxListedImages images altogether.
  [[nodiscard]] bool has_room(const Key& key, std::size_t images) const;
  void recognise_cluster(const std::string& node, const wire::VaultContents& contents);
  void keep_for_later(const Key& key, const wire::VaultContents& contents);
  void adopt(const std::string& node, const std::string& cluster);
  [[nodiscard]] JobId job_in(std::string_view vault_job) const;
  [[nodiscard]] bool is_ours(const wire::ImageRow& row) const;
  // By another node's list of a folder that several have; negative: not known.
  [[nodiscard]] std::int64_t pause_in(const std::string& folder, const wire::ImageRow& reported) const;
  [[nodiscard]] const Row* find_row(const Key& key, const std::string& vault_job,
                                    std::uint64_t version) const;
  [[nodiscard]] static Rows rows_of(const Vault& vault, JobId job);
  [[nodiscard]] Row row_of(const Key& key, const wire::ImageRow& reported);
  static void put_in_order(std::vector<Row>& rows);
  static bool same_lists(Rows a, Rows b);
  [[nodiscard]] bool is_contradicted(const Key& key, Rows rows) const;
  [[nodiscard]] std::optional<JobId> first_job_from(JobId job) const;
  void add(std::vector<ListedImage>& listed, std::optional<JobId> job) const;
  void save(const Key& key, Vault& vault);

  [[nodiscard]] std::string suspect_of(const Row& row) const;

  Store& store_;
  DoubtOf doubt_of_;
  Recognised recognised_;
  std::string cluster_;
  bool cluster_settled_ = false;  // images of it are known
  bool may_recognise_ = true;
  std::map<std::pair<std::string, std::string>, wire::VaultContents> unrecognised_;  // of other clusters
  std::map<Key, Vault> vaults_;
  std::int64_t last_seen_ms_ = 0;
  std::map<std::tuple<Key, std::string, std::uint64_t>, std::int64_t> measured_;  // pauses no list has yet
};

}  // namespace ckpt::coordinator
