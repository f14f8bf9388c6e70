// SPDX-License-Identifier: Apache-2.0
// The checkpoint store of a fake agent. Snapshots are entries of a list; a job that continues from a snapshot
// "runs" at once. An image of a set is taken once its rank is ordered to pause. Folders are shared between
// the checkpoint stores of a test. Set the checkpoint store up before the agent starts.
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
  const std::vector<std::byte> token{32, std::byte{7}};  // the token that opens any node's checkpoint store
};

class FakeCheckpointStore {
 public:
  FakeCheckpointStore(FakeAgent& agent, std::string node, std::shared_ptr<SharedFolders> shared);

  std::atomic<bool> refuse_snapshots{false};
  std::atomic<bool> gives_way{false};       // whether each snapshot yields to a migration
  std::atomic<bool> ended_before{false};    // whether an earlier order's snapshot has ended the job when the
                                            // present order arrives
  std::atomic<bool> hold_snapshots{false};  // whether snapshots get no answer and are not taken
  std::atomic<bool> ignore_cancels{false};  // whether a held snapshot stays held after a cancellation
  std::atomic<bool> lose_answers{false};    // whether snapshots are taken without an answer, and show in
                                            // inventories only
  std::atomic<bool> lose_restored{false};   // whether restored jobs are started without an answer, and show
                                            // in inventories only
  std::atomic<bool> refuse_restores{false};
  std::atomic<bool> hold_restores{false};  // whether restores get no answer and start nothing
  std::atomic<bool> finds_damage{false};   // whether the image that a restore names is damaged; then the
                                           // previous image is used
  std::atomic<unsigned> snapshots{0};      // the number of ordered snapshots
  std::atomic<unsigned> kept{0};           // the number of retained versions, according to the last order
  std::atomic<unsigned> restores{0};
  std::atomic<bool> hold_lists{false};     // whether requests for the list wait for release_lists()
  std::atomic<unsigned> lists{0};          // the number of requests for the list
  std::atomic<bool> refuse_checks{false};  // whether the check of a folder is refused because nothing can be
                                           // written there
  std::atomic<bool> refuse_grants{false};
  std::atomic<unsigned> grants{0};  // the number of grants of this node's own checkpoint store to other nodes
  std::atomic<unsigned> revoked{0};               // the number of revoked grants
  std::atomic<bool> durable{false};               // whether the last snapshot was durable
  std::atomic<std::int64_t> pause_ns{3'000'000};  // the pause of each snapshot
  std::atomic<std::int64_t> age_ms{0};  // the age of a snapshot's barrier when the snapshot is taken

  void release_lists();
  // Answers the held restores as given up. Call this on the agent's thread.
  void give_up_restores();
  void release_snapshots();  // takes the held snapshots

 private:
  void on_frame(const wire::FrameHeader& header, std::span<const std::byte> body);
  void take(const wire::TakeSnapshot& order);
  void write(const wire::TakeSnapshot& order);
  void gather(const wire::GatherRank& order);
  void give_up(const wire::TakeSnapshot& order);
  void restore(const wire::RestoreImage& order);
  void report_restore(const wire::RestoreImage& order);
  void perform(const wire::CheckpointStoreOrder& order);
  void grant(const wire::GrantCheckpointStore& request);
  void read(const wire::ReadImage& request);
  void report_contents(const std::string& folder, const std::string& image_job = {});
  void reply(std::uint64_t request, ErrorCode code = ErrorCode::kInternal, const std::string& error = {});
  [[nodiscard]] std::vector<wire::ImageRow>& rows_of(const std::string& folder,
                                                     const wire::CheckpointStorePeer& peer = {});

  FakeAgent& agent_;
  std::string node_;
  std::vector<wire::CheckpointStoreOrder> held_;    // held orders; used on the agent's thread only
  std::vector<wire::TakeSnapshot> held_snapshots_;  // held orders for snapshots, including those of ranks
                                                    // that wait for their barrier
  std::vector<std::uint64_t> held_restores_;
  std::shared_ptr<SharedFolders> shared_;
};

}  // namespace ckpt::coordinator::test
