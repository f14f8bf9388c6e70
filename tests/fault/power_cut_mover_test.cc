// SPDX-License-Identifier: Apache-2.0
// Tests of power cuts at each step of a mover that takes snapshots. The mover's recorded writes are replayed
// onto a disk. On this disk unsynced data is present, missing or torn. The newest version that was ever
// reported, or a newer one, restores completely.
#include "tests/fault/checkpoint_mover.h"
#include "tests/fault/write_journal.h"

namespace ckpt::engine::test {
namespace {

using checkpoint_store::test::PowerCutFiles;
using ckpt::test::JournalEntry;

// A restore target in plain memory.
class PlainTarget : public checkpoint_store::RestoreTarget {
 public:
  Result<void> begin(const checkpoint_store::Version& version) override {
    CKPT_TRY(stored, image::decode_stored_job(version.job_record));
    plan_ = stored.plan;
    chunk_bytes_ = version.chunk_bytes;
    content.clear();
    for (const image::Extent& extent : plan_.extents)
      content[plan_.tensors[extent.tensor].name].resize(extent.bytes);
    return ok();
  }
  Result<void> chunk(std::uint32_t region, std::uint64_t chunk, std::span<const std::byte> bytes) override {
    auto& whole = content.at(plan_.tensors[plan_.extents[region].tensor].name);
    std::copy(bytes.begin(), bytes.end(), whole.begin() + static_cast<std::ptrdiff_t>(chunk * chunk_bytes_));
    return ok();
  }
  Result<void> zero_chunk(std::uint32_t, std::uint64_t, std::uint64_t) override { return ok(); }
  Result<void> finish(checkpoint_store::VersionReader& reader) override {
    CKPT_TRY(bytes, reader.read_blob(image::kHostBlob, 1 << 20));
    host = std::move(bytes);
    return ok();
  }

  std::map<std::string, std::vector<std::byte>> content;  // the content of the tensors that span extents
  std::vector<std::byte> host;

 private:
  image::Plan plan_;
  std::uint64_t chunk_bytes_ = 0;
};

class PowerCutMover : public CheckpointStoreMover {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "power-cut-" + std::to_string(::getpid());
    fs::remove_all(root_);
    CheckpointStoreMover::SetUp();
    folder = root_ + "/disk/vault";
    fs::create_directories(root_ + "/disk");
    record();
  }
  void TearDown() override { fs::remove_all(root_); }

  // Records five versions; two are retained, so the space of the older versions is reclaimed.
  void record() {
    const std::string journal = root_ + "/journal";
    MoverProcess mover(0, "a",
                       {"LD_PRELOAD=" CKPT_RECORD_WRITES, "CKPT_RECORD_FOLDER=" + root_ + "/disk",
                        "CKPT_RECORD_JOURNAL=" + journal});
    for (std::uint64_t version = 1; version <= 5; ++version) {
      job.write("weights", version * 3 * kChunk, random_bytes(20 * kChunk, version));
      job.write("moments", 0, random_bytes(kChunk * version, 50 + version));
      Snapshot snapshot(mover, job, folder);
      snapshot.request.keep = 2;
      snapshot.start();
      snapshot.stage();
      expected_[version] = {content_of(job), text("host of " + std::to_string(version))};
      snapshot.send_host(expected_[version].second);
      snapshot.done = mover.expect<messages::SnapshotDone>();
      ASSERT_EQ(snapshot.done.version, version);
      told_[fs::file_size(journal)] = version;
      end_session(mover, snapshot.key());
    }
    ASSERT_EQ(mover.wait_exit(), 0);
    entries_ = ckpt::test::read_journal(journal);
  }

  // Stores in root_/after a content that the disk may have after a power cut before entry `cut`.
  void cut_power(std::size_t cut, std::uint64_t seed, const std::string& left_out = {}) {
    PowerCutFiles disk;
    if (!left_out.empty()) disk.leave_out_syncs_of(left_out);
    must(disk.make_folder("."));
    must(disk.sync_folder("."));
    ckpt::test::replay(disk, std::span(entries_).first(cut), root_ + "/disk");
    disk.restart(seed);
    ckpt::test::store(disk, root_ + "/after");
  }
  [[nodiscard]] std::uint64_t reported_before(std::size_t cut) const {
    const std::uint64_t end = cut == 0 ? 0 : entries_[cut - 1].end;
    const auto above = told_.upper_bound(end);
    return above == told_.begin() ? 0 : std::prev(above)->second;
  }

  // Opens the store as a restarted mover does. Returns an empty string, or the violated condition.
  std::string check(std::uint64_t reported) {
    auto checkpoint_store = checkpoint_store::CheckpointStore::open(root_ + "/after/vault", {});
    if (!checkpoint_store)
      return "the checkpoint store does not open: " + checkpoint_store.error().to_string();
    PlainTarget target;
    const auto report = (*checkpoint_store)->restore("job", std::nullopt, target, {});
    if (!report) return reported == 0 ? "" : "nothing restores: " + report.error().to_string();
    const auto& restored = *report;
    const std::uint64_t number = restored.version->number;
    if (!restored.skipped.empty())
      return "half a version is listed: " + restored.skipped[0].reason.to_string();
    if (number < reported)
      return "version " + std::to_string(number) + " restores, " + std::to_string(reported) + " was reported";
    for (const auto& [name, bytes] : target.content)
      if (bytes != expected_.at(number).first.at(name)) return "tensor " + name + " has other content";
    if (target.host != expected_.at(number).second) return "the host state is another one";
    return {};
  }

  std::string cut_everywhere(const std::string& left_out, std::uint64_t seeds) {
    for (std::size_t cut = 0; cut <= entries_.size(); ++cut) {
      for (std::uint64_t seed = 0; seed < seeds; ++seed) {
        cut_power(cut, cut * 100 + seed, left_out);
        if (const std::string wrong = check(reported_before(cut)); !wrong.empty())
          return wrong + " (cut before " + std::to_string(cut) + " of " + std::to_string(entries_.size()) +
                 ", seed " + std::to_string(seed) + ")";
      }
    }
    return {};
  }

  std::string root_;
  std::vector<JournalEntry> entries_;
  std::map<std::uint64_t, std::uint64_t> told_;  // the reported version by the journal's length at that time
  std::map<std::uint64_t, std::pair<Content, std::vector<std::byte>>> expected_;
};

TEST_F(PowerCutMover, TheNewestCompleteVersionRestoresAfterAPowerCutAtEachStep) {
  EXPECT_GT(entries_.size(), 50u);
  EXPECT_EQ(cut_everywhere("", 3), "");
}

// If a sync is left out, the check must report a loss. This proves that the check can detect losses.
TEST_F(PowerCutMover, AMissingSyncIsDetectedAsDataLoss) {
  for (const char* left_out : {".pack.new", "/packs", ".version.new", "/versions"})
    EXPECT_NE(cut_everywhere(left_out, 3), "") << left_out;
}

// A mover restores the version into the memory of a standby.
TEST_F(PowerCutMover, MoverRestoresTheNewestVersionAfterAPowerCut) {
  for (const auto& [end, version] : told_) {
    std::size_t cut = 0;
    while (cut < entries_.size() && entries_[cut].end <= end) ++cut;
    cut_power(cut, version);
    folder = root_ + "/after/vault";
    std::string host;
    EXPECT_EQ(restore(0, &host).version, version);
    EXPECT_EQ(host, "host of " + std::to_string(version));
    EXPECT_TRUE(content_of(standby) == expected_.at(version).first) << version;
  }
}

// A mover continues to write after the power cut.
TEST_F(PowerCutMover, LaterVersionsCanBeWrittenAfterAPowerCut) {
  for (std::size_t cut = 0; cut < entries_.size(); cut += 9) {
    cut_power(cut, cut);
    folder = root_ + "/after/vault";
    MoverProcess mover(0, "a");
    Snapshot next(mover, job, folder);
    next.take("after the cut");
    EXPECT_GT(next.done.version, reported_before(cut)) << cut;
    EXPECT_EQ(restore(0).version, next.done.version) << cut;
    EXPECT_TRUE(content_of(standby) == content_of(job)) << cut;
  }
}

}  // namespace
}  // namespace ckpt::engine::test
