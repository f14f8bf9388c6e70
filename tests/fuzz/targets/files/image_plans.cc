// SPDX-License-Identifier: Apache-2.0
// Plans and final manifests of an image, and the record of its job in a stored image: {kind u8, bytes}.
// Decoded values survive encoding and decoding. A plan that matches its own tensors gives every extent a
// place inside them.
#include <map>

#include "libckpt/store/manifest.h"
#include "libckpt/store/plan.h"
#include "libckpt/store/stored_job.h"
#include "tests/fuzz/fuzz.h"

namespace ckpt::fuzz {
namespace {

void check_places(const image::Plan& plan, const std::vector<image::Place>& places) {
  FUZZ_CHECK(places.size() == plan.extents.size());
  std::map<std::uint64_t, std::uint64_t> region_ends;
  for (const wire::TensorInfo& tensor : plan.tensors)
    region_ends[tensor.region] = std::max(region_ends[tensor.region], tensor.offset + tensor.bytes);
  for (std::size_t i = 0; i < places.size(); ++i) {
    FUZZ_CHECK(places[i].extent == plan.extents[i].id && places[i].bytes == plan.extents[i].bytes);
    FUZZ_CHECK(places[i].offset + places[i].bytes <= region_ends[places[i].region]);
  }
}

void check_plan(std::span<const std::byte> bytes) {
  const auto decoded = image::decode_plan(bytes);
  if (!decoded) return;
  const image::Plan& plan = *decoded;
  const auto once = wire::encode(plan);
  const auto again = image::decode_plan(once);
  FUZZ_CHECK(again.has_value() && wire::encode(*again) == once);
  for (const bool complete : {true, false}) {
    const auto places = image::match_plan(plan, plan.tensors, complete);
    if (places) check_places(plan, places->places);
  }
  const auto own = image::build_plan(plan.tensors, plan.chunk_bytes, 1, 1);
  if (!own) return;
  const auto places = image::match_plan(*own, plan.tensors, true);
  if (places) check_places(*own, places->places);
}

void check_manifest(std::span<const std::byte> bytes) {
  const auto decoded = image::decode_manifest(bytes);
  if (!decoded) return;
  const image::Manifest& manifest = *decoded;
  const auto once = wire::encode(manifest);
  const auto again = image::decode_manifest(once);
  FUZZ_CHECK(again.has_value() && wire::encode(*again) == once);
  static const auto params =
      track::FingerprintParams::expand(track::FingerprintKey{}, track::FingerprintPurpose::kChunks);
  const track::Fingerprint root{manifest.root_lo, manifest.root_hi};
  // A host state that differs from the manifest's is refused, unless the manifest has no host state.
  const image::HostStateSum none{0, track::fingerprint(*params, {})};
  if (image::check_manifest(manifest, root, none)) FUZZ_CHECK(manifest.host_state_bytes == 0);
  FUZZ_CHECK(!image::check_manifest(manifest, {root.lo ^ 1, root.hi}, none));
}

void check_stored_job(std::span<const std::byte> bytes) {
  const auto decoded = image::decode_stored_job(bytes);
  if (!decoded) return;
  const auto once = wire::encode(*decoded);
  const auto again = image::decode_stored_job(once);
  FUZZ_CHECK(again.has_value() && wire::encode(*again) == once);
}

}  // namespace
}  // namespace ckpt::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ckpt::fuzz::Input input(data, size);
  const auto kind = input.number<std::uint8_t>();
  if (kind == 2)
    ckpt::fuzz::check_stored_job(input.rest());
  else
    kind % 2 == 0 ? ckpt::fuzz::check_plan(input.rest()) : ckpt::fuzz::check_manifest(input.rest());
  return 0;
}
