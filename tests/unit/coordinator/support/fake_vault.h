// SPDX-License-Identifier: Apache-2.0
// The vault of a fake agent: snapshots are entries of a list, a job that goes on from one "runs" at once.
// Folders are shared between the vaults of a test. Set it up before the agent starts.
#pragma once

#include <atomic>
#include <map>
#include <mutex>

#include "libckpt/protocol/wire/image_messages.h"
#include "tests/unit/coordinator/support/fake_agent.h"

namespace ckpt::coordinator::test {

struct SharedFolders {
  std::mutex mutex;
  std::map<std::string, std::vector<wire::ImageRow>> rows;
  const std::vector<std::byte> token{32, std::byte{7}};  // that opens any node's vault
};

class FakeVault {
 public:
  FakeVault(FakeAgent& agent, std::string node, std::shared_ptr<SharedFolders> shared);

  std::atomic<bool> refuse_snapshots{false};
  std::atomic<bool> gives_way{false};     // each snapshot, to a migration
  std::atomic<bool> ended_before{false};  // an earlier order's snapshot has ended the job when this one comes
  std::atomic<bool> hold_snapshots{false};  // no answer, nothing is taken
  std::atomic<bool> ignore_cancels{false};  // a snapshot that is held stays so
  std::atomic<bool> lose_answers{false};    // it is done, and it shows in inventories only
  std::atomic<bool> lose_restored{false};   // likewise of a job that was started
  std::atomic<bool> refuse_restores{false};
  std::atomic<bool> hold_restores{false};  // no answer, nothing is started
  std::atomic<bool> finds_damage{false};   // of the image that a restore names; the one before is used
  std::atomic<unsigned> snapshots{0};      // ordered
  std::atomic<unsigned> kept{0};           // versions that stay, as the last order has it
  std::atomic<unsigned> restores{0};
  std::atomic<bool> hold_lists{false};     // asked for its list, it answers with release_lists()
  std::atomic<unsigned> lists{0};          // asked
  std::atomic<bool> refuse_checks{false};  // of a folder: nothing can be written there
  std::atomic<bool> refuse_grants{false};
  std::atomic<unsigned> grants{0};                // of this node's own vault to others
  std::atomic<unsigned> revoked{0};               // that were taken back
  std::atomic<bool> durable{false};               // the last one
  std::atomic<std::int64_t> pause_ns{3'000'000};  // of each snapshot
  std::atomic<std::int64_t> age_ms{0};            // of a snapshot's barrier when it is taken

  void release_lists();
  // Answers the restores that are held as given up. On the agent's thread.
  void give_up_restores();
  void release_snapshots();  // those that are held are taken

 private:
  void on_frame(const wire::FrameHeader& header, std::span<const std::byte> body);
  void take(const wire::TakeSnapshot& order);
  void give_up(const wire::TakeSnapshot& order);
  void restore(const wire::RestoreImage& order);
  void report_restore(const wire::RestoreImage& order);
  void perform(const wire::VaultOrder& order);
  void grant(const wire::GrantVault& request);
  void read(const wire::ReadImage& request);
  void say_contents(const std::string& folder, const std::string& vault_job = {});
  void reply(std::uint64_t request, ErrorCode code = ErrorCode::kInternal, const std::string& error = {});
  [[nodiscard]] std::vector<wire::ImageRow>& rows_of(const std::string& folder,
                                                     const wire::VaultPeer& peer = {});

  FakeAgent& agent_;
  std::string node_;
  std::vector<wire::VaultOrder> held_;  // on the agent's thread, as these
  std::vector<wire::TakeSnapshot> held_snapshots_;
  std::vector<std::uint64_t> held_restores_;
  std::shared_ptr<SharedFolders> shared_;
};

}  // namespace ckpt::coordinator::test
