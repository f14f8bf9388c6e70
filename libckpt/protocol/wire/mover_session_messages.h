// SPDX-License-Identifier: Apache-2.0
// The messages between agent and mover for the process, its sessions, and their memory. mover_messages.h has
// the order and the rules of all these messages.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "libckpt/protocol/wire/commit_messages.h"
#include "libckpt/protocol/wire/mover_values.h"
#include "libckpt/protocol/wire/node_messages.h"
#include "libckpt/protocol/wire/tensor.h"

namespace ckpt::wire::mover {

struct Configure {
  static constexpr std::uint8_t kVersion = 2, kCompat = 1;
  static constexpr std::string_view kName = "Configure";
  std::string node;
  std::uint32_t gpu = 0;              // the GPU's ordinal in the driver
  std::vector<DataNetwork> networks;  // the preferred network first; if empty, TLS over this machine's
                                      // loopback
  std::uint64_t staging_bytes = std::uint64_t{128} << 20;  // pinned memory, allocated now; at most 256 MiB
  std::uint64_t chunk_bytes =
      0;  // the chunk size of new sessions at the source: a power of two, 64 KiB-2 MiB; 0 for the default
  std::uint16_t first_port = 0;  // the first of the ports at which lanes listen; for 0, the kernel chooses
                                 // the ports
  std::uint16_t last_port = 0;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(node, gpu, networks, staging_bytes, chunk_bytes, first_port, last_port);
  }
};

struct MoverReady {
  CKPT_MOVER_MESSAGE(MoverReady);
  std::string device_name;
  std::uint64_t memory_bytes = 0;
  std::uint64_t free_bytes = 0;  // the free memory after the mover's own allocations
  template <class A>
  decltype(auto) fields(A& a) {
    return a(device_name, memory_bytes, free_bytes);
  }
};

struct MoverFailed {
  CKPT_MOVER_MESSAGE(MoverFailed);
  Failure failure;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(failure);
  }
};

enum class Purpose : std::uint8_t { kInvalid = 0, kMove = 1, kSnapshot = 2, kRestore = 3, kCheck = 4 };
[[nodiscard]] constexpr bool is_known(Purpose p) {
  return p >= Purpose::kMove && p <= Purpose::kCheck;
}

struct OpenSession {
  static constexpr std::uint8_t kVersion = 3, kCompat = 1;
  static constexpr std::string_view kName = "OpenSession";
  SessionKey session;
  Side side = Side::kInvalid;
  Incarnation incarnation = 0;  // the target's incarnation, equal on both sides
  Bytes fingerprint_key;        // the fingerprints' key, of kFingerprintKeyBytes bytes
  Bytes session_token;          // the session's token, of kSessionTokenBytes bytes
  // True for a target that has no standby whose memory could be attached. The mover makes a region for each
  // region of the source's plan, with the same id, and exports it (MadeRegions).
  bool makes_memory = false;
  Purpose purpose = Purpose::kMove;      // the purpose of the session; a snapshot is a source, and a restore
                                         // is a target
  std::string network;                   // the network for the session's lanes; if empty, the first network
  std::uint32_t first_path = 0;          // the index of the network's first address that the lanes use
  std::uint32_t paths = 1;               // the number of addresses that the lanes use in turn
  bool is_new_program = false;           // whether the standby runs a different program from the source's
  std::uint8_t allowed_differences = 0;  // the allowed differences of the standby's tensors, a combination of
                                         // kAllow...
  template <class A>
  decltype(auto) fields(A& a) {
    return a(session, side, incarnation, fingerprint_key, session_token, makes_memory, purpose, network,
             first_path, paths, is_new_program, allowed_differences);
  }
};

struct EndSession {
  CKPT_MOVER_MESSAGE(EndSession);
  SessionKey session;
  std::string reason;  // the reason, if the migration did not end normally; the other side's mover receives
                       // it
  template <class A>
  decltype(auto) fields(A& a) {
    return a(session, reason);
  }
};

struct SessionFailed {
  CKPT_MOVER_MESSAGE(SessionFailed);
  SessionKey session;
  Failure failure;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(session, failure);
  }
};

struct SessionEnded {
  CKPT_MOVER_MESSAGE(SessionEnded);
  SessionKey session;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(session);
  }
};

struct AttachRegions {  // a message with one descriptor per region, in order
  CKPT_MOVER_MESSAGE(AttachRegions);
  SessionKey session;
  std::uint64_t batch = 0;  // a number that Attached repeats
  std::vector<RegionInfo> regions;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(session, batch, regions);
  }
};

struct Attached {
  CKPT_MOVER_MESSAGE(Attached);
  SessionKey session;
  std::uint64_t batch = 0;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(session, batch);
  }
};

struct AttachTensors {
  CKPT_MOVER_MESSAGE(AttachTensors);
  SessionKey session;
  std::vector<TensorInfo> tensors;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(session, tensors);
  }
};

struct DropTensors {
  CKPT_MOVER_MESSAGE(DropTensors);
  SessionKey session;
  std::vector<std::string> names;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(session, names);
  }
};

struct DropRegions {
  CKPT_MOVER_MESSAGE(DropRegions);
  SessionKey session;
  std::vector<std::uint64_t> regions;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(session, regions);
  }
};

struct Dropped {
  CKPT_MOVER_MESSAGE(Dropped);
  SessionKey session;
  std::vector<std::uint64_t> regions;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(session, regions);
  }
};

struct MadeRegions {  // a message with one descriptor per region, in order; sent before Verified
  CKPT_MOVER_MESSAGE(MadeRegions);
  SessionKey session;
  std::vector<RegionInfo> regions;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(session, regions);
  }
};

struct DroppedRegions {
  CKPT_MOVER_MESSAGE(DroppedRegions);
  SessionKey session;
  std::vector<std::uint64_t> regions;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(session, regions);
  }
};

struct RegionsLetGo {
  CKPT_MOVER_MESSAGE(RegionsLetGo);
  SessionKey session;
  std::uint64_t regions = 0;  // the number of dropped regions since the session began
  template <class A>
  decltype(auto) fields(A& a) {
    return a(session, regions);
  }
};

struct FillRegions {  // a message with two descriptors per region, in order: the region with the content, and
                      // the region to fill
  CKPT_MOVER_MESSAGE(FillRegions);
  SessionKey session;       // the key of the message, with kFillRank as its rank
  std::uint64_t batch = 0;  // a number that the answer repeats
  std::vector<RegionInfo> regions;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(session, batch, regions);
  }
};

// A notice that every region equals the region from which it was copied, by fingerprints of both. The mover
// no longer holds either region.
struct Filled {
  CKPT_MOVER_MESSAGE(Filled);
  SessionKey session;
  std::uint64_t batch = 0;
  std::uint64_t bytes = 0;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(session, batch, bytes);
  }
};

struct FillFailed {
  CKPT_MOVER_MESSAGE(FillFailed);
  SessionKey session;
  std::uint64_t batch = 0;
  Failure failure;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(session, batch, failure);
  }
};

}  // namespace ckpt::wire::mover
