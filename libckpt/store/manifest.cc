// SPDX-License-Identifier: Apache-2.0
#include "libckpt/store/manifest.h"

#include "libckpt/datapath/track/fingerprint_stream.h"

namespace ckpt::image {

Result<Manifest> decode_manifest(std::span<const std::byte> bytes) {
  CKPT_TRY(manifest, wire::decode<Manifest>(bytes));
  if (manifest.format != kFormatVersion)
    return Error(ErrorCode::kNotSupported, "Manifest format " + std::to_string(manifest.format) +
                                               "; this build reads " + std::to_string(kFormatVersion));
  std::uint64_t last = 0;
  for (const ManifestExtent& extent : manifest.extents) {
    if (extent.id <= last || extent.generation == 0 || extent.bytes == 0)
      return Error(ErrorCode::kProtocol, "The extents of a manifest are not in order");
    last = extent.id;
  }
  return manifest;
}

Result<void> check_manifest(const Manifest& manifest, const track::Fingerprint& root,
                            const HostStateSum& host_state) {
  if (manifest.root_lo != root.lo || manifest.root_hi != root.hi)
    return Error(ErrorCode::kCorrupt, "The manifest's root differs from the root over the target's memory");
  if (manifest.host_state_bytes != host_state.bytes)
    return Error(ErrorCode::kCorrupt, "The host state has " + std::to_string(host_state.bytes) +
                                          " bytes at the target, but the manifest states " +
                                          std::to_string(manifest.host_state_bytes));
  const track::Fingerprint& own = host_state.fingerprint;
  if (manifest.host_state_lo != own.lo || manifest.host_state_hi != own.hi)
    return Error(ErrorCode::kCorrupt,
                 "The host state that arrived differs from the host state that was sent");
  return ok();
}

}  // namespace ckpt::image
