// SPDX-License-Identifier: Apache-2.0
// A job's memory, movers that take and restore snapshots of it, and this program as the movers' agent.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "libckpt/protocol/wire/mover_checkpoint_messages.h"
#include "libckpt/protocol/wire/mover_move_messages.h"
#include "libckpt/protocol/wire/mover_session_messages.h"
#include "libckpt/protocol/wire/mover_values.h"
#include "libckpt/store/local/checkpoint_store.h"
#include "libckpt/store/stored_job.h"
#include "tests/fault/mover_process.h"

namespace ckpt::engine::test {

namespace fs = std::filesystem;

inline constexpr std::uint64_t kChunk = 64 * kKiB;

inline std::vector<std::byte> text(const std::string& words) {
  const auto bytes = std::as_bytes(std::span(words));
  return {bytes.begin(), bytes.end()};
}

inline void open_session(MoverProcess& mover, const messages::SessionKey& key, messages::Purpose purpose,
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

inline messages::SessionKey next_key() {
  static std::uint64_t number = 0;
  return {++number, messages::kCheckpointStoreRank};
}

inline void end_session(MoverProcess& mover, const messages::SessionKey& key) {
  messages::EndSession end;
  end.session = key;
  mover.send(end);
  mover.expect<messages::SessionEnded>();
}

// One snapshot, taken step by step.
class Snapshot {
 public:
  Snapshot(MoverProcess& mover, const JobMemory& memory, std::string folder)
      : mover_(mover), key_(next_key()) {
    open_session(mover_, key_, messages::Purpose::kSnapshot);
    memory.attach(mover_, key_);
    request.session = key_;
    request.folder = std::move(folder);
    request.image_job = "job";
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

class CheckpointStoreMover : public testing::Test {
 protected:
  void SetUp() override {
    folder = testing::TempDir() + "vault-mover-" + std::to_string(::getpid());
    fs::remove_all(folder);
    name_tensors(job, false);
    name_tensors(standby, true);
    job.write("weights", 0, random_bytes(kWeights * 4, 1));
    job.write("moments", 0, random_bytes(kMoments * 4, 2));
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
  // Restores a version into the standby's memory, on the other GPU.
  messages::RestoreDone restore(std::uint64_t version, std::string* host = nullptr) {
    MoverProcess mover(1, "b");
    const auto key = next_key();
    open_session(mover, key, messages::Purpose::kRestore);
    standby.attach(mover, key);
    messages::StartRestore start;
    start.session = key;
    start.folder = folder;
    start.image_job = "job";
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
  JobMemory job{device(0)};
  JobMemory standby{device(1)};
};

}  // namespace ckpt::engine::test
