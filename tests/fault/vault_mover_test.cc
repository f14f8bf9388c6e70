// SPDX-License-Identifier: Apache-2.0
// Snapshots into a vault and restores out of it by mover processes; this program plays their agent and the job.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "libckpt/image/stored_job.h"
#include "libckpt/image/vault/vault.h"
#include "tests/fault/mover_process.h"

namespace ckpt::engine {
namespace {

using test::JobMemory;
using test::kKiB;
using test::kMiB;
using test::MoverProcess;
using test::must;
namespace messages = wire::mover;
namespace fs = std::filesystem;

constexpr std::uint64_t kChunk = 64 * kKiB;

std::vector<std::byte> text(const std::string& words) {
  const auto bytes = std::as_bytes(std::span(words));
  return {bytes.begin(), bytes.end()};
}

void open_session(MoverProcess& mover, const messages::SessionKey& key, messages::Purpose purpose,
                  bool makes_memory = false) {
  messages::OpenSession open;
  open.session = key;
  open.incarnation = 1;
  open.side = purpose == messages::Purpose::kSnapshot ? wire::Side::kSource : wire::Side::kTarget;
  open.purpose = purpose;
  open.makes_memory = makes_memory;
  open.fingerprint_key.resize(32);
  open.session_token.resize(16);
  must(fill_random(open.fingerprint_key));
  must(fill_random(open.session_token));
  mover.send(open);
}

messages::SessionKey next_key() {
  static std::uint64_t number = 0;
  return {++number, messages::kVaultRank};
}

void end_session(MoverProcess& mover, const messages::SessionKey& key) {
  messages::EndSession end;
  end.session = key;
  mover.send(end);
  mover.expect<messages::SessionEnded>();
}

// One snapshot, step by step.
class Snapshot {
 public:
  Snapshot(MoverProcess& mover, const JobMemory& memory, std::string folder)
      : mover_(mover), key_(next_key()) {
    open_session(mover_, key_, messages::Purpose::kSnapshot);
    memory.attach(mover_, key_);
    request.session = key_;
    request.folder = std::move(folder);
    request.vault_job = "job";
    request.keep = 8;
  }
  void start() {
    image::StoredJob stored;
    stored.spec.job = 7;
    stored.spec.incarnation = 1;
    stored.gpu_model = "a model";
    const auto record = wire::encode(stored);
    const UniqueFd file = must(make_memory_file("record", record.size()));
    must(write_all(file.get(), record));
    request.record_bytes = record.size();
    mover_.send(request, {file.get()});
    ready = mover_.expect<messages::SnapshotReady>();
  }
  void stage() {
    messages::FinalRound round;
    round.session = key_;
    mover_.send(round);
    staged = mover_.expect<messages::SnapshotStaged>();
  }
  void send_host(std::span<const std::byte> bytes) {
    messages::SnapshotHost host;
    host.session = key_;
    host.host_state_bytes = bytes.size();
    const UniqueFd file = must(make_memory_file("host", std::max<std::size_t>(bytes.size(), 1)));
    must(write_all(file.get(), bytes));
    mover_.send(host, bytes.empty() ? std::vector<int>() : std::vector<int>{file.get()});
  }
  void finish() {
    done = mover_.expect<messages::SnapshotDone>();
    end_session(mover_, key_);
  }
  void take(const std::string& host) {
    start();
    stage();
    send_host(text(host));
    finish();
  }
  [[nodiscard]] const messages::SessionKey& key() const { return key_; }

  messages::StartSnapshot request;
  messages::SnapshotReady ready;
  messages::SnapshotStaged staged;
  messages::SnapshotDone done;

 private:
  MoverProcess& mover_;
  const messages::SessionKey key_;
};

class VaultMover : public testing::Test {
 protected:
  void SetUp() override {
    folder = testing::TempDir() + "vault-mover-" + std::to_string(::getpid());
    fs::remove_all(folder);
    name_tensors(job, false);
    name_tensors(standby, true);
    job.write("weights", 0, test::random_bytes(kWeights * 4, 1));
    job.write("moments", 0, test::random_bytes(kMoments * 4, 2));
  }
  void TearDown() override { fs::remove_all(folder); }

  static void name_tensors(JobMemory& memory, bool other_layout) {
    const std::uint64_t first = memory.add_region(8 * kMiB);
    const std::uint64_t second = memory.add_region(8 * kMiB);
    memory.add_tensor("weights", other_layout ? second : first, other_layout ? 4096 : 0, kWeights);
    memory.add_tensor("weights.head", other_layout ? second : first, other_layout ? 8192 : 4096, 1000);
    memory.add_tensor("moments", other_layout ? first : second, 0, kMoments, CKPT_OPTIMIZER);
    memory.add_tensor("zero", other_layout ? first : second, 4 * kMiB, 100'000, CKPT_BUFFER);
    memory.write("zero", 0, std::vector<std::byte>(400'000));
  }
  using Content = std::map<std::string, std::vector<std::byte>>;
  static Content content_of(const JobMemory& memory) {
    Content content;
    for (const auto& tensor : memory.tensors) content[tensor.name] = memory.read(tensor.name);
    return content;
  }
  // A version into the standby's memory, on the other GPU.
  messages::RestoreDone restore(std::uint64_t version, std::string* host = nullptr) {
    MoverProcess mover(1, "b");
    const auto key = next_key();
    open_session(mover, key, messages::Purpose::kRestore);
    standby.attach(mover, key);
    messages::StartRestore start;
    start.session = key;
    start.folder = folder;
    start.vault_job = "job";
    start.version = version;
    mover.send(start);
    UniqueFd file;
    auto done = mover.expect<messages::RestoreDone>(&file);
    if (host != nullptr) {
      host->resize(done.host_state_bytes);
      EXPECT_EQ(::pread(file.get(), host->data(), host->size(), 0), static_cast<ssize_t>(host->size()));
    }
    end_session(mover, key);
    return done;
  }
  // Flips a byte in the newest pack.
  void damage_newest_pack() const {
    fs::path newest;
    for (const auto& entry : fs::directory_iterator(folder + "/jobs/job/packs"))
      if (newest.empty() || entry.path().filename() > newest.filename()) newest = entry.path();
    std::fstream file(newest, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(200);
    const char byte = static_cast<char>(file.get());
    file.seekp(200);
    file.put(static_cast<char>(byte ^ 1));
  }

  static constexpr std::uint64_t kWeights = 1'500'001;
  static constexpr std::uint64_t kMoments = 900'000;
  std::string folder;
  JobMemory job{test::device(0)};
  JobMemory standby{test::device(1)};
};

TEST_F(VaultMover, ASnapshotRestoresIntoAnotherLayout) {
  const auto before = content_of(job);
  {
    MoverProcess mover(0, "a");
    Snapshot snapshot(mover, job, folder);
    snapshot.take("step 5");
    EXPECT_EQ(snapshot.done.version, 1u);
    EXPECT_EQ(snapshot.done.parent, 0u);
    EXPECT_EQ(snapshot.staged.waited_bytes, 0u);
    EXPECT_EQ(snapshot.staged.state_bytes, kWeights * 4 + kMoments * 4 + 400'000);
  }
  std::string host;
  const auto done = restore(0, &host);
  EXPECT_EQ(done.version, 1u);
  EXPECT_EQ(host, "step 5");
  EXPECT_TRUE(content_of(standby) == before);
}

TEST_F(VaultMover, TheNextOneCostsWhatChanged) {
  MoverProcess mover(0, "a");
  Snapshot(mover, job, folder).take("one");
  const auto first = content_of(job);
  job.write("weights", 3 * kChunk + 5, test::random_bytes(10, 3));
  job.write("moments", 0, test::random_bytes(kChunk, 4));
  const auto second = content_of(job);
  Snapshot next(mover, job, folder);
  next.take("two");
  EXPECT_EQ(next.done.parent, 1u);
  EXPECT_EQ(next.staged.dirty_bytes, 2 * kChunk);
  EXPECT_LT(next.done.written_bytes, 2 * kChunk + 16 * kKiB);
  EXPECT_EQ(restore(0).version, 2u);
  EXPECT_TRUE(content_of(standby) == second);
  EXPECT_EQ(restore(1).version, 1u);
  EXPECT_TRUE(content_of(standby) == first);
}

TEST_F(VaultMover, WhatChangesBetweenTheRoundAheadAndTheBarrierIsFound) {
  MoverProcess mover(0, "a");
  Snapshot snapshot(mover, job, folder);
  snapshot.start();
  EXPECT_GT(snapshot.ready.staged_bytes, 0u);
  job.write("weights", 7 * kChunk, test::random_bytes(kChunk, 5));
  const auto at_barrier = content_of(job);
  snapshot.stage();
  snapshot.send_host({});
  snapshot.finish();
  restore(0);
  EXPECT_TRUE(content_of(standby) == at_barrier);
}

TEST_F(VaultMover, TheJobGoesOnWhileTheVersionIsWritten) {
  MoverProcess mover(0, "a");
  Snapshot snapshot(mover, job, folder);
  snapshot.start();
  const auto at_barrier = content_of(job);
  snapshot.stage();
  // It has not been written: the host state is not there yet. And the mover holds nothing any more.
  job.write("weights", 0, test::random_bytes(kWeights * 4, 6));
  const std::uint64_t free_before = job.free_bytes();
  job.free_region(2);
  EXPECT_GE(job.free_bytes(), free_before + 8 * kMiB);
  snapshot.send_host(text("host"));
  snapshot.finish();
  restore(0);
  EXPECT_TRUE(content_of(standby) == at_barrier);
}

TEST_F(VaultMover, WhatStagingCannotHoldIsWaitedFor) {
  const std::uint64_t big = job.add_region(64 * kMiB);
  job.add_tensor("big", big, 0, 12'000'000);
  standby.add_tensor("big", standby.add_region(64 * kMiB), 0, 12'000'000);
  job.write("big", 0, test::random_bytes(48'000'000, 7));
  const auto before = content_of(job);
  MoverProcess mover(0, "a");
  Snapshot snapshot(mover, job, folder);
  snapshot.request.staging_bytes = 16 * kMiB;
  snapshot.start();
  snapshot.stage();
  // The job may go on, so nothing waits any more: but for what staging holds last, all of it is in the vault's files by now.
  std::uint64_t stored = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) stored += entry.file_size();
  EXPECT_GE(stored + snapshot.request.staging_bytes, snapshot.staged.dirty_bytes);
  EXPECT_GT(snapshot.staged.waited_bytes, 30 * kMiB);
  job.write("big", 0, test::random_bytes(48'000'000, 8));
  snapshot.send_host({});
  snapshot.finish();
  restore(0);
  EXPECT_TRUE(content_of(standby) == before);
}

TEST_F(VaultMover, ADamagedNewestVersionFallsBack) {
  MoverProcess mover(0, "a");
  Snapshot(mover, job, folder).take("one");
  const auto first = content_of(job);
  job.write("weights", 0, test::random_bytes(kChunk, 9));
  Snapshot(mover, job, folder).take("two");
  damage_newest_pack();
  std::string host;
  const auto done = restore(0, &host);
  EXPECT_EQ(done.version, 1u);
  EXPECT_EQ(host, "one");
  ASSERT_EQ(done.skipped.size(), 1u);
  EXPECT_NE(done.skipped[0].find("version 2"), std::string::npos) << done.skipped[0];
  EXPECT_TRUE(content_of(standby) == first);
}

TEST_F(VaultMover, AMoverThatIsNewCopiesAllAndWritesNothingTwice) {
  {
    MoverProcess mover(0, "a");
    Snapshot(mover, job, folder).take("one");
  }
  MoverProcess mover(0, "a");
  Snapshot next(mover, job, folder);
  next.take("two");
  EXPECT_EQ(next.done.version, 2u);
  EXPECT_EQ(next.staged.dirty_bytes, next.staged.state_bytes);
  EXPECT_LT(next.done.written_bytes, kChunk);
  EXPECT_EQ(restore(0).version, 2u);
  EXPECT_TRUE(content_of(standby) == content_of(job));
}

TEST_F(VaultMover, AVersionThatWentMeanwhileIsNotKeptFrom) {
  MoverProcess mover(0, "a");
  Snapshot(mover, job, folder).take("one");
  {
    auto vault = must(vault::Vault::open(folder, {}));
    must(vault->remove_version("job", 1));
  }
  Snapshot next(mover, job, folder);
  next.take("two");
  EXPECT_EQ(next.done.parent, 0u);
  EXPECT_EQ(next.staged.dirty_bytes, next.staged.state_bytes);
  restore(0);
  EXPECT_TRUE(content_of(standby) == content_of(job));
}

TEST_F(VaultMover, OneThatIsGivenUpLeavesTheOneBefore) {
  MoverProcess mover(0, "a");
  Snapshot(mover, job, folder).take("one");
  const auto first = content_of(job);
  job.write("weights", 0, test::random_bytes(kChunk, 10));
  Snapshot next(mover, job, folder);
  next.start();
  next.stage();
  end_session(mover, next.key());  // its host state never came
  EXPECT_EQ(restore(0).version, 1u);
  EXPECT_TRUE(content_of(standby) == first);
  Snapshot third(mover, job, folder);
  third.take("three");
  EXPECT_EQ(third.staged.dirty_bytes, kChunk);
  restore(0);
  EXPECT_TRUE(content_of(standby) == content_of(job));
}

TEST_F(VaultMover, AStandbyThatNamesOtherTensorsIsRefused) {
  MoverProcess mover(0, "a");
  Snapshot(mover, job, folder).take("one");
  standby.tensors[0].name = "other";
  try {
    restore(0);
    FAIL() << "it was restored";
  } catch (const std::runtime_error& refused) {
    EXPECT_NE(std::string(refused.what()).find("\"weights\""), std::string::npos) << refused.what();
  }
}

TEST_F(VaultMover, MemoryIsMadeWhereNoStandbyHasIt) {
  // As a transparent job: regions are moved whole.
  JobMemory whole(test::device(0));
  const std::uint64_t region = whole.add_region(4 * kMiB);
  whole.add_tensor("region:1", region, 0, kMiB);
  whole.write("region:1", 0, test::random_bytes(4 * kMiB, 11));
  MoverProcess mover(0, "a");
  Snapshot(mover, whole, folder).take("process");
  MoverProcess other(1, "b");
  const auto key = next_key();
  open_session(other, key, messages::Purpose::kRestore, true);
  messages::StartRestore start;
  start.session = key;
  start.folder = folder;
  start.vault_job = "job";
  other.send(start);
  UniqueFd made_file;
  const auto made = other.expect<messages::MadeRegions>(&made_file);
  ASSERT_EQ(made.regions.size(), 1u);
  EXPECT_EQ(made.regions[0].id, region);
  other.expect<messages::RestoreDone>();
  const auto& device = test::device(1);
  const ContextScope scope(device);
  const auto memory =
      must(ImportedMemory::import(device.api(), device.device(), made_file.get(), made.regions[0].bytes));
  std::vector<std::byte> found(4 * kMiB);
  ASSERT_EQ(device.api().cuMemcpyDtoH_v2(found.data(), memory.pointer(), found.size()), CUDA_SUCCESS);
  EXPECT_TRUE(found == whole.read("region:1"));
  end_session(other, key);
}

// kill -9 of the mover at each of its crash points: the version before restores, or the new one where it was durable.
TEST_F(VaultMover, AMoverThatDiesLeavesAWholeVersion) {
  const std::string faults = folder + ".faults";
  fs::create_directories(faults);
  Content expected;
  {
    MoverProcess mover(0, "a");
    Snapshot(mover, job, folder).take("one");
    expected = content_of(job);
  }
  std::uint64_t versions = 1;
  for (const int point : {305, 306, 307, 308}) {
    job.write("weights", 0, test::random_bytes(kWeights * 4, static_cast<std::uint64_t>(point)));
    std::ofstream(faults + "/mover.a.0." + std::to_string(point)) << "kill";
    MoverProcess mover(0, "a", {"CKPT_FAULT_DIR=" + faults});
    try {
      Snapshot(mover, job, folder).take("two");
      FAIL() << "the mover did not die at " << point;
    } catch (const std::runtime_error&) {
    }
    EXPECT_TRUE(mover.wait_killed());
    if (point == 308) {
      ++versions;
      expected = content_of(job);
    }
    EXPECT_EQ(restore(0).version, versions) << point;
    EXPECT_TRUE(content_of(standby) == expected) << point;
  }
  fs::remove_all(faults);
}

}  // namespace
}  // namespace ckpt::engine
