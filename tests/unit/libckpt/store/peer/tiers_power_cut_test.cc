// SPDX-License-Identifier: Apache-2.0
// Tests the memory tier when the power fails, or the program is killed, at every step. The disk has the packs
// that have left memory, and the packs of lasting versions. Other packs may be lost, and the loss is then
// reported. The checkers also run with one sync left out, and must then find a loss.
#include <gtest/gtest.h>

#include <functional>

#include "libckpt/store/local/pack.h"
#include "libckpt/store/peer/tiered_files.h"
#include "tests/unit/libckpt/store/local/power_cut_files.h"
#include "tests/unit/libckpt/store/local/support.h"

namespace ckpt::checkpoint_store::test {
namespace {

constexpr const char* kDisk = "vault";
constexpr const char* kTmpfs = "tmpfs";
constexpr std::uint64_t kFewPacks = 6 << 10;  // a limit for versions with few changes
constexpr std::uint64_t kAllPacks = 1 << 20;
constexpr int kVersions = 6;
const std::string kJob = "job-1";

Tiers in_memory(std::uint64_t limit) {
  Tiers tiers;
  tiers.disk = kDisk;
  tiers.memory = std::string(kTmpfs) + "/memory";
  tiers.memory_limit_bytes = limit;
  tiers.into_memory = true;
  return tiers;
}

// Returns tiers for versions that must survive a power loss.
Tiers to_last() {
  Tiers tiers = in_memory(kAllPacks);
  tiers.into_memory = false;
  tiers.settles = kJob;
  return tiers;
}

CheckpointStoreOptions options_for(Files& files) {
  CheckpointStoreOptions options;
  options.files = &files;
  options.max_pack_bytes = 8 << 10;
  options.collect.small_pack_bytes = 4 << 10;
  options.collect.max_small_packs = 2;
  options.collect.max_dead_share = 0.1;
  return options;
}

struct Told {
  std::map<std::uint64_t, Content> committed;
  std::map<std::uint64_t, Content> begun;  // versions that may exist or be missing
  std::set<std::uint64_t> on_disk;         // versions without a pack that only memory contains
};

// A workload that writes versions with a separate writer until an operation fails.
class Writer {
 public:
  Writer(PowerCutFiles& base, Told& told, Tiers tiers) : files_(std::move(tiers), base), told_(told) {}

  Result<void> run(int versions, bool collects) {
    CKPT_TRY(checkpoint_store, CheckpointStore::open(kDisk, options_for(files_)));
    CKPT_TRYV(look(*checkpoint_store));
    Content content;
    content.regions[1] = random_bytes(60 * kTestChunk - 100, 1);
    content.regions[2] = random_bytes(5 * kTestChunk, 2);
    std::optional<Content> before;
    if (!told_.committed.empty()) before = content = told_.committed.rbegin()->second;
    std::mt19937_64 random(told_.committed.size());
    for (int i = 0; i < versions; ++i) {
      change(content, random);
      CKPT_TRYV(write(*checkpoint_store, content, before ? &*before : nullptr));
      before = content;
      CKPT_TRYV(look(*checkpoint_store));
      if (!collects) continue;
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
    told_.begun[writer->number()] = content;
    CKPT_TRYV(writer->commit({}));
    told_.committed[writer->number()] = content;
    return ok();
  }
  Result<void> remove_old(CheckpointStore& checkpoint_store) {
    constexpr std::size_t kKept = 2;
    while (told_.committed.size() > kKept) told_.committed.erase(told_.committed.begin());
    CKPT_TRYV(checkpoint_store.retain_newest(kJob, kKept));
    return ok();
  }
  Result<void> look(CheckpointStore& checkpoint_store) {
    if (told_.committed.empty()) return ok();
    CKPT_TRY(resident, files_.packs_in_memory(kJob));
    CKPT_TRY(uses, checkpoint_store.uses(kJob));
    for (const VersionUse& use : uses) {
      const bool in_memory = std::any_of(use.packs.begin(), use.packs.end(), [&](const auto& entry) {
        return resident.contains(pack_name(entry.first));
      });
      if (use.whole && !in_memory) told_.on_disk.insert(use.number);
    }
    return ok();
  }

  TieredFiles files_;
  Told& told_;
};

// Checks that every version in `must_restore` can be restored, and that no version restores with wrong
// content. Returns an empty text, or the violation.
std::string check(PowerCutFiles& base, Told& told, const std::set<std::uint64_t>& must_restore) {
  TieredFiles files(in_memory(kAllPacks), base);
  CheckpointStoreOptions options = options_for(files);
  options.writable = false;
  auto opened = CheckpointStore::open(kDisk, options);
  if (!opened) return must_restore.empty() ? "" : "does not open: " + opened.error().to_string();
  CheckpointStore& checkpoint_store = **opened;
  for (const auto& [number, content] : told.begun) {
    const auto restored = restore_exactly(checkpoint_store, kJob, number);
    const std::string name = "version " + std::to_string(number);
    if (!restored && must_restore.contains(number)) return name + ": " + restored.error().to_string();
    if (restored && *restored != content) return name + " has other content";
    if (restored) told.committed[number] = content;  // the next writer builds on this version
  }
  if (must_restore.empty()) return {};
  MemoryTarget target;
  const auto newest = checkpoint_store.restore(kJob, std::nullopt, target, {});
  if (!newest) return "the newest does not restore: " + newest.error().to_string();
  const std::uint64_t number = newest->version->number;
  if (number < *must_restore.rbegin()) return "an older version than the newest was restored";
  return target.content == told.begun.at(number) ? "" : "the newest has other content";
}

std::set<std::uint64_t> numbers_of(const std::map<std::uint64_t, Content>& versions) {
  std::set<std::uint64_t> numbers;
  for (const auto& [number, content] : versions) numbers.insert(number);
  return numbers;
}

std::uint64_t steps_of(const std::function<void(PowerCutFiles&)>& life) {
  PowerCutFiles files;
  must(files.make_folder("."));
  const std::uint64_t before = files.operations();
  life(files);
  return files.operations() - before;
}

void power_cut(PowerCutFiles& files, std::uint64_t seed) {
  files.restart(seed);
  files.forget(kTmpfs);
}

// Cuts the power before each step of a run, in three ways each. `life` schedules the cut, and returns the
// versions that must restore afterwards.
using CutLife = std::function<std::set<std::uint64_t>(PowerCutFiles& files, Told& told, std::uint64_t cut)>;
std::string cut_everywhere(std::uint64_t steps, const std::set<std::string>& left_out, const CutLife& life) {
  for (std::uint64_t cut = 0; cut < steps; ++cut) {
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      PowerCutFiles files;
      for (const std::string& text : left_out) files.leave_out_syncs_of(text);
      must(files.make_folder("."));
      Told told;
      const std::set<std::uint64_t> must_restore = life(files, told, cut);
      power_cut(files, cut * 10 + seed);
      const std::string wrong = check(files, told, must_restore);
      if (!wrong.empty())
        return wrong + " (cut before step " + std::to_string(cut) + ", seed " + std::to_string(seed) + ")";
    }
  }
  return {};
}

// Cuts the power while versions are written to memory and spilled at the limit.
std::string cut_while_they_spill(const std::set<std::string>& left_out) {
  const std::uint64_t steps = steps_of([](PowerCutFiles& files) {
    Told told;
    must(Writer(files, told, in_memory(kFewPacks)).run(kVersions, false));
    EXPECT_GE(told.on_disk.size(), 2u) << "nothing leaves memory";
    EXPECT_LT(told.on_disk.size(), told.committed.size());
  });
  return cut_everywhere(steps, left_out, [](PowerCutFiles& files, Told& told, std::uint64_t cut) {
    files.cut_after(cut);
    (void)Writer(files, told, in_memory(kFewPacks)).run(kVersions, false);
    return told.on_disk;
  });
}

// Cuts the power while a durable version is written over versions of the job that are only in memory.
std::string cut_while_it_settles(const std::set<std::string>& left_out) {
  const auto in_memory_first = [](PowerCutFiles& files, Told& told) {
    must(Writer(files, told, in_memory(kAllPacks)).run(2, false));
    EXPECT_TRUE(told.on_disk.empty());
  };
  const std::uint64_t steps = steps_of([&](PowerCutFiles& files) {
    Told told;
    in_memory_first(files, told);
    must(Writer(files, told, to_last()).run(1, false));
  });
  return cut_everywhere(steps, left_out, [&](PowerCutFiles& files, Told& told, std::uint64_t cut) {
    in_memory_first(files, told);
    files.cut_after(cut);
    const bool told_of = Writer(files, told, to_last()).run(1, false).has_value();
    return told_of ? numbers_of(told.committed) : told.on_disk;
  });
}

TEST(TierPowerCut, SpilledPacksAreDurable) {
  EXPECT_EQ(cut_while_they_spill({}), "");
}
TEST(TierPowerCut, CheckerFindsALossWithoutASyncOfSpilledPacks) {
  EXPECT_NE(cut_while_they_spill({".pack.new"}), "");
}
TEST(TierPowerCut, CheckerFindsALossWithoutASyncOfThePackFolder) {
  EXPECT_NE(cut_while_they_spill({"vault/jobs/job-1/packs"}), "");
}
TEST(TierPowerCut, DurableVersionIsOnDiskWithItsPacks) {
  EXPECT_EQ(cut_while_it_settles({}), "");
}
TEST(TierPowerCut, CheckerFindsALossWithoutASyncOfThePacks) {
  EXPECT_NE(cut_while_it_settles({".pack.new"}), "");
}

// Only the program dies: the memory tier survives, and no committed version is lost. The next writer removes
// everything that is unfinished.
TEST(TierPowerCut, AKilledWriterLosesNoVersion) {
  const std::uint64_t steps = steps_of([](PowerCutFiles& files) {
    Told told;
    must(Writer(files, told, in_memory(kFewPacks)).run(kVersions, true));
  });
  for (std::uint64_t cut = 0; cut < steps; ++cut) {
    SCOPED_TRACE("killed before step " + std::to_string(cut));
    PowerCutFiles files;
    must(files.make_folder("."));
    Told told;
    files.cut_after(cut);
    (void)Writer(files, told, in_memory(kFewPacks)).run(kVersions, true);
    files.restart_program();
    ASSERT_EQ(check(files, told, numbers_of(told.committed)), "");
    const auto next = Writer(files, told, in_memory(kFewPacks)).run(2, true);
    ASSERT_TRUE(next.has_value()) << next.error().to_string();
    ASSERT_EQ(check(files, told, numbers_of(told.committed)), "");
    for (const std::string& path : files.all_files()) ASSERT_FALSE(is_unfinished(path)) << path;
  }
}

}  // namespace
}  // namespace ckpt::checkpoint_store::test
