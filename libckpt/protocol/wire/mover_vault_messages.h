// SPDX-License-Identifier: Apache-2.0
// Agent <-> mover: snapshots and restores (mover_messages.h has the order and what holds for all of these
// messages).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "libckpt/protocol/wire/mover_values.h"

namespace ckpt::wire::mover {

// The access to a vault besides its folder: a tier in memory before it, or the node that has it
// (libckpt/store/peer).
struct VaultAccess {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  std::string memory;  // a folder; empty: none
  std::uint64_t memory_limit_bytes = 0;
  std::string peer_address;  // empty: the folder is here
  std::vector<std::byte> peer_token;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(memory, memory_limit_bytes, peer_address, peer_token);
  }
};

struct StartSnapshot {  // one descriptor: an encoded image::StoredJob, whose plan the mover adds
  CKPT_MOVER_MESSAGE(StartSnapshot);
  SessionKey session;
  std::string folder;  // of the vault
  std::string vault_job;
  std::uint32_t keep = 1;
  std::uint64_t staging_bytes = 0;      // host memory for what has changed; 0: half of what the node has left
  std::uint64_t vault_limit_bytes = 0;  // 0: none
  std::uint32_t slowdown_permille = 0;  // as MigrateOptions
  bool full = false;                    // nothing is kept of the version before
  std::uint64_t record_bytes = 0;
  VaultAccess access;
  std::uint64_t first_version = 0;  // as TakeSnapshot
  template <class A>
  decltype(auto) fields(A& a) {
    return a(session, folder, vault_job, keep, staging_bytes, vault_limit_bytes, slowdown_permille, full,
             record_bytes, access, first_version);
  }
};

struct JobLeft {  // no session's: no session of the job is open, and none will be before it comes back
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
  std::uint64_t dirty_bytes = 0;   // that differ from the version before, so far
  std::uint64_t staged_bytes = 0;  // of them
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
  std::uint64_t waited_bytes = 0;  // that staging could not hold: they are in the vault
  std::int64_t scan_ns = 0;
  std::int64_t copy_ns = 0;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(session, state_bytes, dirty_bytes, waited_bytes, scan_ns, copy_ns);
  }
};

struct SnapshotHost {  // one descriptor: host state (none if host_state_bytes is 0)
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
  std::uint64_t parent = 0;  // 0: a full one
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
  std::string vault_job;
  std::uint64_t version = 0;  // 0: the newest that is whole
  VaultAccess access;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(session, folder, vault_job, version, access);
  }
};

struct RestoreDone {  // one descriptor: host state (none if host_state_bytes is 0)
  CKPT_MOVER_MESSAGE(RestoreDone);
  SessionKey session;
  std::uint64_t version = 0;
  std::uint64_t state_bytes = 0;
  std::uint64_t host_state_bytes = 0;
  std::vector<std::string> skipped;  // newer versions that are damaged, and how
  template <class A>
  decltype(auto) fields(A& a) {
    return a(session, version, state_bytes, host_state_bytes, skipped);
  }
};

}  // namespace ckpt::wire::mover
