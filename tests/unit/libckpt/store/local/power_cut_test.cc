// SPDX-License-Identifier: Apache-2.0
// The checkpoint store under power cuts at every one of its steps, with torn, dropped and reordered writes,
// and under flipped bits. The same checker runs with one sync left out, and must then find a lost version.
#include <gtest/gtest.h>

#include "tests/unit/libckpt/store/local/power_cut_files.h"
#include "tests/unit/libckpt/store/local/support.h"

namespace ckpt::checkpoint_store::test {
namespace {

constexpr const char* kFolder = "vault";
const std::string kJob = "job-1";

CheckpointStoreOptions options_for(Files& files) {
  CheckpointStoreOptions options;
  options.files = &files;
  options.max_pack_bytes = 8 << 10;
  options.collect.small_pack_bytes = 4 << 10;
  options.collect.max_small_packs = 2;
  options.collect.max_dead_share = 0.1;
  return options;
}

Content first_content() {
  Content content;
  content.regions[1] = random_bytes(300 * kTestChunk - 100, 1);  // two blocks of names and a short last chunk
  content.regions[2] = random_bytes(5 * kTestChunk, 2);
  content.blobs["host"] = random_bytes(1000, 3);
  return content;
}

// The versions that must exist according to the results that the writer received.
struct Told {
  std::map<std::uint64_t, Content> committed;
  std::optional<std::pair<std::uint64_t, Content>> under_way;  // commit() has not returned: the version may
                                                               // exist
  std::set<std::uint64_t> going;  // remove has not returned: these versions may exist
};

// A workload that writes versions, abandons some, removes older versions and collects their space, until an
// operation fails.
class Workload {
 public:
  Workload(PowerCutFiles& files, Told& told, std::uint64_t seed)
      : files_(files), told_(told), random_(seed) {}

  Result<void> run(int versions) {
    CKPT_TRY(checkpoint_store, CheckpointStore::open(kFolder, options_for(files_)));
    Content content = told_.committed.empty() ? first_content() : told_.committed.rbegin()->second;
    std::optional<Content> before;
    if (!told_.committed.empty()) before = content;
    for (int i = 0; i < versions; ++i) {
      Content next = content;
      change(next, random_);
      CKPT_TRYV(write(*checkpoint_store, next, before ? &*before : nullptr));
      content = next;
      before = next;
      if (random_() % 3 == 0) {
        CKPT_TRYV(begin_and_abandon(*checkpoint_store, content));
      }
      CKPT_TRYV(remove_old(*checkpoint_store));
      CKPT_TRYV(checkpoint_store->collect(kJob));
    }
    return ok();
  }

 private:
  Result<void> write(CheckpointStore& checkpoint_store, const Content& content, const Content* before) {
    VersionInput input;
    input.chunk_bytes = kTestChunk;
    if (before == nullptr) input.parent = 0;
    CKPT_TRY(writer, checkpoint_store.begin_version(kJob, input));
    CKPT_TRYV(put_content(*writer, content, before));
    told_.under_way = {writer->number(), content};
    CKPT_TRYV(writer->commit({}));
    told_.committed[writer->number()] = content;
    told_.under_way.reset();
    return ok();
  }
  Result<void> begin_and_abandon(CheckpointStore& checkpoint_store, Content content) {
    change(content, random_);
    VersionInput input;
    input.chunk_bytes = kTestChunk;
    CKPT_TRY(writer, checkpoint_store.begin_version(kJob, input));
    CKPT_TRYV(put_content(*writer, content, nullptr));
    writer->abandon();
    return ok();
  }
  Result<void> remove_old(CheckpointStore& checkpoint_store) {
    constexpr std::size_t kKept = 2;
    if (told_.committed.size() <= kKept) return ok();
    while (told_.committed.size() > kKept) {
      told_.going.insert(told_.committed.begin()->first);
      told_.committed.erase(told_.committed.begin());
    }
    CKPT_TRYV(checkpoint_store.retain_newest(kJob, kKept));
    told_.going.clear();
    return ok();
  }

  PowerCutFiles& files_;
  Told& told_;
  std::mt19937_64 random_;
};

// Returns the first violation in a checkpoint store after a power cut; empty if there is none. From now on
// all versions that were found must remain.
std::string check(PowerCutFiles& files, Told& told) {
  auto opened = CheckpointStore::open(kFolder, options_for(files));
  if (!opened) return "does not open: " + opened.error().to_string();
  CheckpointStore& checkpoint_store = **opened;
  std::set<std::uint64_t> listed;
  const auto versions = checkpoint_store.versions(kJob);
  if (versions)
    for (const auto& version : *versions) listed.insert(version->number);
  if (versions && !checkpoint_store.damaged_versions(kJob)->empty()) return "a damaged version is listed";
  for (const auto& [number, content] : told.committed) {
    const auto restored = restore_exactly(checkpoint_store, kJob, number);
    if (!restored) return "version " + std::to_string(number) + ": " + restored.error().to_string();
    if (*restored != content) return "version " + std::to_string(number) + " has other content";
  }
  if (told.under_way && listed.contains(told.under_way->first)) {
    const auto restored = restore_exactly(checkpoint_store, kJob, told.under_way->first);
    if (!restored) return "half a version is listed: " + restored.error().to_string();
    if (*restored != told.under_way->second) return "half a version restores";
    told.committed.insert(*told.under_way);
  }
  if (!told.committed.empty()) {
    MemoryTarget target;
    const auto newest = checkpoint_store.restore(kJob, std::nullopt, target, {});
    if (!newest) return "the newest does not restore: " + newest.error().to_string();
    if (target.content != told.committed.rbegin()->second)
      return "another version than the newest was restored";
  }
  told.under_way.reset();
  told.going.clear();
  return {};
}

// Returns the first violation after cuts at every `stride`-th step, with two runs each.
std::string cut_everywhere(const std::set<std::string>& left_out, std::uint64_t stride) {
  std::uint64_t steps = 0;
  {
    PowerCutFiles files;
    Told told;
    must(files.make_folder("."));
    must(Workload(files, told, 5).run(5));
    steps = files.operations();
  }
  for (std::uint64_t cut = 0; cut < steps; cut += stride) {
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      PowerCutFiles files;
      for (const std::string& text : left_out) files.leave_out_syncs_of(text);
      Told told;
      files.cut_after(cut);
      (void)Workload(files, told, 5).run(5);
      files.restart(cut * 10 + seed);
      const std::string where =
          " (cut before step " + std::to_string(cut) + ", seed " + std::to_string(seed) + ")";
      if (auto wrong = check(files, told); !wrong.empty()) return wrong + where;
      // A second run continues on the same disk, and its power is also cut.
      files.cut_after((cut * 7 + seed * 31) % 200);
      (void)Workload(files, told, cut + seed).run(3);
      files.restart(cut * 10 + seed + 5);
      if (auto wrong = check(files, told); !wrong.empty()) return wrong + where + " in its second life";
    }
  }
  return {};
}

TEST(PowerCut, PowerCutAtAnyPointLosesNoVersionAndLeavesNoPartialVersion) {
  EXPECT_EQ(cut_everywhere({}, 1), "");
}

// Each test omits one sync that the checkpoint store needs, and expects that the check detects it.
TEST(PowerCut, CheckerFindsALossWithoutASyncOfPacks) {
  EXPECT_NE(cut_everywhere({".pack.new"}, 1), "");
}
TEST(PowerCut, CheckerFindsALossWithoutASyncOfThePackFolder) {
  EXPECT_NE(cut_everywhere({"/packs"}, 1), "");
}
TEST(PowerCut, CheckerFindsALossWithoutASyncOfVersions) {
  EXPECT_NE(cut_everywhere({".version.new"}, 1), "");
}
TEST(PowerCut, CheckerFindsALossWithoutASyncOfTheVersionFolder) {
  EXPECT_NE(cut_everywhere({"/versions"}, 1), "");
}
TEST(PowerCut, CheckerFindsALossWithoutASyncOfTheJobFolder) {
  EXPECT_NE(cut_everywhere({"vault/jobs"}, 1), "");
}

// A checkpoint store with three versions that share chunks.
struct Small {
  PowerCutFiles files;
  std::map<std::uint64_t, Content> versions;
  Small() {
    must(files.make_folder("."));
    auto checkpoint_store = must(CheckpointStore::open(kFolder, options_for(files)));
    std::mt19937_64 random(3);
    Content content;
    content.regions[1] = random_bytes(20 * kTestChunk, 1);
    content.regions[2] = Bytes(3 * kTestChunk + 7);
    for (int i = 0; i < 3; ++i) {
      const Content before = content;
      change(content, random);
      const auto version = must(write_version(*checkpoint_store, kJob, content, i == 0 ? nullptr : &before));
      versions[version->number] = content;
    }
  }
};

TEST(Damage, AFlippedBitAnywhereIsDetectedAndNeverRestored) {
  Small small;
  std::size_t flips = 0;
  for (const std::string& path : small.files.all_files()) {
    for (std::size_t at = 0; at < small.files.bytes_of(path).size(); at += at < 200 ? 1 : 37) {
      small.files.bytes_of(path)[at] ^= std::byte{0x10};
      flips++;
      {
        CheckpointStoreOptions options = options_for(small.files);
        options.writable = false;
        auto checkpoint_store = must(CheckpointStore::open(kFolder, options));
        const auto report = must(checkpoint_store->verify(kJob));
        EXPECT_FALSE(report.is_clean() && checkpoint_store->damage().empty()) << path << " at " << at;
        for (const VersionHealth& health : report.versions) {
          const auto restored = restore_exactly(*checkpoint_store, kJob, health.number);
          EXPECT_EQ(restored.has_value(), health.restorable) << path << " at " << at;
          if (restored) {
            EXPECT_EQ(*restored, small.versions.at(health.number)) << path << " at " << at;
          }
        }
      }
      small.files.bytes_of(path)[at] ^= std::byte{0x10};
    }
  }
  EXPECT_GT(flips, 1000u);
}

TEST(Damage, VersionBeforeADamagedVersionIsRestoredAndReported) {
  Small small;
  // The newest pack belongs only to the newest version.
  std::string newest;
  for (const std::string& path : small.files.all_files())
    if (path.ends_with(".pack")) newest = path;
  auto& bytes = small.files.bytes_of(newest);
  for (std::size_t at = 100; at < 400; ++at) bytes[at] = std::byte{0x77};
  auto checkpoint_store = must(CheckpointStore::open(kFolder, options_for(small.files)));
  MemoryTarget target;
  const auto report = must(checkpoint_store->restore(kJob, std::nullopt, target, {}));
  ASSERT_EQ(report.skipped.size(), 1u);
  EXPECT_EQ(report.skipped[0].number, 3u);
  EXPECT_EQ(report.skipped[0].reason.code(), ErrorCode::kCorrupt);
  EXPECT_EQ(report.version->number, 2u);
  EXPECT_EQ(target.content, small.versions.at(2));
  EXPECT_EQ(target.begun, 2);
}

TEST(Damage, DamagedChunkIsStoredAgainAndRestores) {
  Small small;
  std::string oldest;
  for (const std::string& path : small.files.all_files())
    if (path.ends_with(".pack") && oldest.empty()) oldest = path;
  small.files.bytes_of(oldest)[sizeof(PackHead) + sizeof(RecordHead) + 3] ^= std::byte{1};
  auto checkpoint_store = must(CheckpointStore::open(kFolder, options_for(small.files)));
  EXPECT_FALSE(must(checkpoint_store->verify(kJob)).is_clean());
  const Content& content = small.versions.at(3);
  const auto version = must(write_version(*checkpoint_store, kJob, content, &content));
  EXPECT_GE(version->new_chunks, 1u) << "nothing but what was damaged";
  EXPECT_LE(version->new_chunks, 2u);
  EXPECT_EQ(must(restore_exactly(*checkpoint_store, kJob, version->number)), content);
}

TEST(Damage, CollectionKeepsAPackWithADamagedLiveRecordAndLosesNoOtherData) {
  Small small;
  auto checkpoint_store = must(CheckpointStore::open(kFolder, options_for(small.files)));
  std::string oldest;
  for (const std::string& path : small.files.all_files())
    if (path.ends_with(".pack") && oldest.empty()) oldest = path;
  small.files.bytes_of(oldest)[sizeof(PackHead) + sizeof(RecordHead) + 3] ^= std::byte{1};
  must(checkpoint_store->remove_version(kJob, 1));
  const auto before = must(checkpoint_store->verify(kJob));
  for (int i = 0; i < 3; ++i) must(checkpoint_store->collect(kJob));
  const auto after = must(checkpoint_store->verify(kJob));
  ASSERT_EQ(before.versions.size(), after.versions.size());
  for (std::size_t i = 0; i < after.versions.size(); ++i) {
    EXPECT_EQ(before.versions[i].restorable, after.versions[i].restorable);
    EXPECT_EQ(before.versions[i].damaged_chunks, after.versions[i].damaged_chunks);
  }
}

TEST(Space, AFullDiskOrALimitRefusesTheVersionAndLosesNoData) {
  Small small;
  const std::uint64_t full = small.files.total_bytes();
  for (std::uint64_t room = 0; room < 12'000; room += 500) {
    for (const bool by_limit : {false, true}) {
      CheckpointStoreOptions options = options_for(small.files);
      options.limit_bytes = by_limit ? full + room : 0;
      if (!by_limit) small.files.set_space(full + room);
      auto checkpoint_store = must(CheckpointStore::open(kFolder, options));
      Content next = small.versions.at(3);
      next.regions[1] = random_bytes(20 * kTestChunk, 99);
      const auto version = write_version(*checkpoint_store, kJob, next, &small.versions.at(3));
      for (const auto& [number, content] : small.versions)
        EXPECT_EQ(must(restore_exactly(*checkpoint_store, kJob, number)), content);
      if (version) {
        EXPECT_GT(room, 5000u) << "written where there was no room";
        must(checkpoint_store->remove_version(kJob, (*version)->number));
        must(checkpoint_store->collect(kJob));
      } else {
        EXPECT_EQ(version.error().code(), ErrorCode::kRefused) << version.error().to_string();
        EXPECT_LT(room, 11'000u);
      }
      small.files.set_space(~std::uint64_t{0});
    }
  }
}

TEST(Space, AVersionWithAFailedWriteIsNeverCommitted) {
  Small small;
  auto checkpoint_store = must(CheckpointStore::open(kFolder, options_for(small.files)));
  VersionInput input;
  input.chunk_bytes = kTestChunk;
  auto writer = must(checkpoint_store->begin_version(kJob, input));
  // The region exceeds a pack's buffer, so the pack is written before the commit.
  constexpr std::uint64_t kChunks = 40;
  const auto region = must(writer->add_region(Region(0, 1, 2, kChunks * kTestChunk)));
  small.files.set_space(small.files.total_bytes() + 100);
  for (std::uint64_t chunk = 0; chunk < kChunks; ++chunk)
    (void)writer->put_chunk(region, chunk, random_bytes(kTestChunk, chunk));
  small.files.set_space(~std::uint64_t{0});
  for (std::uint64_t chunk = 0; chunk < kChunks; ++chunk)
    (void)writer->put_chunk(region, chunk, random_bytes(kTestChunk, 100 + chunk));
  EXPECT_EQ(writer->commit({}).error().code(), ErrorCode::kRefused);
  writer.reset();
  EXPECT_EQ(must(checkpoint_store->versions(kJob)).size(), small.versions.size());
  EXPECT_TRUE(must(checkpoint_store->verify(kJob)).is_clean());
}

}  // namespace
}  // namespace ckpt::checkpoint_store::test
