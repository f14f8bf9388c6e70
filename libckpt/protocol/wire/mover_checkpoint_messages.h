// SPDX-License-Identifier: Apache-2.0
// The messages between agent and mover for snapshots and restores. mover_messages.h has the order and the
// rules of all these messages.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "libckpt/protocol/wire/mover_values.h"

namespace ckpt::wire::mover {

// The access to a checkpoint store in addition to its folder: a tier in memory, or the node that has the
// checkpoint store (libckpt/store/peer).
struct CheckpointStoreAccess {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  std::string memory;  // the folder of the memory tier; empty if there is none
  std::uint64_t memory_limit_bytes = 0;
  std::string peer_address;  // the address of the node that has the folder; empty if the folder is on this
                             // node
  std::vector<std::byte> peer_token;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(memory, memory_limit_bytes, peer_address, peer_token);
  }
};

struct StartSnapshot {  // a message with one descriptor of an encoded image::StoredJob, to which the mover
                        // adds the plan
  CKPT_MOVER_MESSAGE(StartSnapshot);
  SessionKey session;
  std::string folder;  // the folder of the checkpoint store
  std::string image_job;
  std::uint32_t keep = 1;
  std::uint64_t staging_bytes = 0;  // the host memory for changed chunks; 0: half of the node's remaining
                                    // memory
  std::uint64_t checkpoint_store_limit_bytes =
      0;                                // the limit on the checkpoint store's size; with a peer, on
                                        // the size of the job's part; 0 if there is none
  std::uint32_t slowdown_permille = 0;  // the share of the GPU's time that the snapshot may take,
                                        // as in MigrateOptions
  bool full = false;                    // whether reusing data from the previous version is forbidden
  std::uint64_t record_bytes = 0;
  CheckpointStoreAccess access;
  std::uint64_t first_version = 0;  // the least number of the image, as in TakeSnapshot
  template <class A>
  decltype(auto) fields(A& a) {
    return a(session, folder, image_job, keep, staging_bytes, checkpoint_store_limit_bytes, slowdown_permille,
             full, record_bytes, access, first_version);
  }
};

struct JobLeft {  // a message of no session: the job has no open session and gets none before it returns
  CKPT_MOVER_MESSAGE(JobLeft);
  JobId job = 0;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(job);
  }
};

struct SnapshotReady {
  CKPT_MOVER_MESSAGE(SnapshotReady);
  SessionKey session;
  std::uint64_t state_bytes = 0;
  std::uint64_t dirty_bytes = 0;   // the bytes found so far that differ from the previous version
  std::uint64_t staged_bytes = 0;  // the differing bytes that are staged
  template <class A>
  decltype(auto) fields(A& a) {
    return a(session, state_bytes, dirty_bytes, staged_bytes);
  }
};

struct SnapshotStaged {
  CKPT_MOVER_MESSAGE(SnapshotStaged);
  SessionKey session;
  std::uint64_t state_bytes = 0;
  std::uint64_t dirty_bytes = 0;
  std::uint64_t waited_bytes =
      0;  // the bytes that did not fit into staging memory; they are in the checkpoint store
  std::int64_t scan_ns = 0;
  std::int64_t copy_ns = 0;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(session, state_bytes, dirty_bytes, waited_bytes, scan_ns, copy_ns);
  }
};

struct SnapshotHost {  // a message with one descriptor of the host state; none if host_state_bytes is 0
  CKPT_MOVER_MESSAGE(SnapshotHost);
  SessionKey session;
  std::uint64_t host_state_bytes = 0;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(session, host_state_bytes);
  }
};

struct SnapshotDone {
  CKPT_MOVER_MESSAGE(SnapshotDone);
  SessionKey session;
  std::uint64_t version = 0;
  std::uint64_t parent = 0;  // the number of the parent version; 0 for a full image
  std::uint64_t written_bytes = 0;
  std::uint64_t host_bytes = 0;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(session, version, parent, written_bytes, host_bytes);
  }
};

struct StartRestore {
  CKPT_MOVER_MESSAGE(StartRestore);
  SessionKey session;
  std::string folder;
  std::string image_job;
  std::uint64_t version = 0;  // the version to restore; 0 for the newest intact version
  CheckpointStoreAccess access;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(session, folder, image_job, version, access);
  }
};

struct RestoreDone {  // a message with one descriptor of the host state; none if host_state_bytes is 0
  CKPT_MOVER_MESSAGE(RestoreDone);
  SessionKey session;
  std::uint64_t version = 0;
  std::uint64_t state_bytes = 0;
  std::uint64_t host_state_bytes = 0;
  std::vector<std::string> skipped;  // newer versions that are damaged, each with the damage
  template <class A>
  decltype(auto) fields(A& a) {
    return a(session, version, state_bytes, host_state_bytes, skipped);
  }
};

}  // namespace ckpt::wire::mover
