// SPDX-License-Identifier: Apache-2.0
// The final manifest: the parts of the image and the data that verifies them. It is sent last, after every
// chunk has been acknowledged and BARRIER is durable. The target commits only if all of the manifest is
// correct (ENG-4).
// Threads: pure functions. Errors: kProtocol, kNotSupported for bytes that no source sends; kCorrupt if the
// image does not match the manifest.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "libckpt/base/result.h"
#include "libckpt/datapath/track/fingerprint.h"
#include "libckpt/protocol/wire/codec.h"
#include "libckpt/store/plan.h"

namespace ckpt::image {

struct ManifestExtent {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  std::uint64_t id = 0;
  std::uint64_t generation = 0;
  std::uint64_t bytes = 0;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(id, generation, bytes);
  }
};

struct Manifest {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  std::uint32_t format = kFormatVersion;
  std::uint64_t migration = 0;
  std::uint64_t incarnation = 0;  // the target's incarnation
  std::uint32_t rank = 0;
  std::uint64_t chunk_bytes = 0;
  std::vector<ManifestExtent> extents;  // the live extents, in the order of their ids
  std::uint64_t root_lo = 0;  // the root over chunk size, extents and fingerprints (track::SentMap::root)
  std::uint64_t root_hi = 0;
  std::uint64_t host_state_bytes = 0;
  std::uint64_t host_state_lo = 0;  // the host state's fingerprint under the chunks' key
  std::uint64_t host_state_hi = 0;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(format, migration, incarnation, rank, chunk_bytes, extents, root_lo, root_hi, host_state_bytes,
             host_state_lo, host_state_hi);
  }
};

Result<Manifest> decode_manifest(std::span<const std::byte> bytes);

// The received host state: its size, and its fingerprint under the chunks' key.
struct HostStateSum {
  std::uint64_t bytes = 0;
  track::Fingerprint fingerprint;
};

// Checks the manifest. `root` and `host_state` are the values that the target computed itself.
Result<void> check_manifest(const Manifest& manifest, const track::Fingerprint& root,
                            const HostStateSum& host_state);

}  // namespace ckpt::image
