// SPDX-License-Identifier: Apache-2.0
#include "libckpt/store/plan.h"

#include "libckpt/protocol/wire/migration_messages.h"

#include <ckpt/ckpt.h>
#include <gtest/gtest.h>

#include <random>

#include "libckpt/store/manifest.h"

namespace ckpt::image {
namespace {

wire::TensorInfo tensor(const std::string& name, std::uint64_t region, std::uint64_t offset,
                        std::uint64_t floats, std::uint32_t kind = CKPT_PARAMETER) {
  wire::TensorInfo t;
  t.name = name;
  t.region = region;
  t.offset = offset;
  t.bytes = floats * 4;
  t.dtype = CKPT_F32;
  t.kind = kind;
  t.shape = {floats};
  return t;
}

Plan build(const std::vector<wire::TensorInfo>& tensors) {
  auto plan = build_plan(tensors, 256 << 10, 1, 1);
  EXPECT_TRUE(plan.has_value()) << plan.error().to_string();
  return *plan;
}

std::string refusal(const Result<PlanMatch>& result, ErrorCode code = ErrorCode::kRefused) {
  EXPECT_FALSE(result.has_value());
  if (result.has_value()) return {};
  EXPECT_EQ(result.error().code(), code);
  return result.error().to_string();
}

TEST(Plan, MemoryNamedTwiceIsASingleExtent) {
  const Plan plan = build({tensor("a", 1, 0, 1000), tensor("tied", 1, 0, 1000), tensor("view", 1, 400, 100),
                           tensor("b", 1, 4000, 10), tensor("c", 2, 0, 5)});
  ASSERT_EQ(plan.extents.size(), 3u);
  EXPECT_EQ(plan.state_bytes(), 4000u + 40u + 20u);
  EXPECT_EQ(plan.tensors.size(), 5u);
  EXPECT_EQ(plan.tensors[plan.extents[0].tensor].bytes, 4000u);
}

TEST(Plan, ScratchAndUnexportableMemoryHaveNoExtent) {
  const Plan plan = build({tensor("a", 1, 0, 1000), tensor("s", 1, 4000, 1000, CKPT_SCRATCH),
                           tensor("global", wire::kNoRegion, 0, 10)});
  EXPECT_EQ(plan.extents.size(), 1u);
  EXPECT_EQ(plan.tensors.size(), 3u);
}

TEST(Plan, PartialOverlapAndBadAlignmentAreRefusedByName) {
  auto overlap = build_plan(std::vector{tensor("a", 1, 0, 1000), tensor("b", 1, 2000, 1000)}, 1 << 18, 1, 1);
  ASSERT_FALSE(overlap.has_value());
  EXPECT_NE(overlap.error().to_string().find("\"b\" overlaps tensor \"a\""), std::string::npos);
  auto crooked = build_plan(std::vector{tensor("a", 1, 4, 1000)}, 1 << 18, 1, 1);
  ASSERT_FALSE(crooked.has_value());
  EXPECT_NE(crooked.error().to_string().find("\"a\""), std::string::npos);
}

TEST(Plan, DuplicateTensorNamesAreRefused) {
  EXPECT_FALSE(
      build_plan(std::vector{tensor("a", 1, 0, 10), tensor("a", 1, 400, 10)}, 1 << 18, 1, 1).has_value());
}

TEST(Plan, ExtentsAreMappedToTheTensorsOfTheStandby) {
  const Plan plan = build({tensor("a", 1, 0, 1000), tensor("a.view", 1, 400, 100), tensor("b", 1, 4000, 10)});
  auto places = match_plan(
      plan, std::vector{tensor("b", 9, 32, 10), tensor("a", 8, 64, 1000), tensor("a.view", 8, 464, 100)},
      true);
  ASSERT_TRUE(places.has_value()) << places.error().to_string();
  const std::vector<Place>& found = places->places;
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].region, 8u);
  EXPECT_EQ(found[0].offset, 64u);
  EXPECT_EQ(found[0].bytes, 4000u);
  EXPECT_EQ(found[1].region, 9u);
  EXPECT_EQ(found[1].offset, 32u);
}

TEST(Plan, EachDifferenceNamesTheTensorAndTheField) {
  const Plan plan = build({tensor("w", 1, 0, 1000)});
  EXPECT_NE(refusal(match_plan(plan, {}, true)).find("\"w\" f32[1000] does not exist at the target"),
            std::string::npos);
  auto other = tensor("w", 1, 0, 1000);
  other.shape = {10, 100};
  EXPECT_NE(refusal(match_plan(plan, std::vector{other}, true))
                .find("\"w\" is f32[1000] at the source but f32[10,100] at the target"),
            std::string::npos);
  other = tensor("w", 1, 0, 1000);
  other.dtype = CKPT_I32;
  EXPECT_NE(refusal(match_plan(plan, std::vector{other}, true)).find("i32[1000]"), std::string::npos);
  EXPECT_NE(
      refusal(match_plan(plan, std::vector{tensor("w", 1, 0, 1000, CKPT_SCRATCH)}, true)).find("scratch"),
      std::string::npos);
  EXPECT_NE(
      refusal(match_plan(plan, std::vector{tensor("w", wire::kNoRegion, 0, 1000)}, true)).find("exported"),
      std::string::npos);
  EXPECT_NE(refusal(match_plan(plan, std::vector{tensor("w", 1, 8, 1000)}, true)).find("aligned"),
            std::string::npos);
  const auto more = std::vector{tensor("w", 1, 0, 1000), tensor("extra", 1, 4000, 10)};
  EXPECT_NE(refusal(match_plan(plan, more, true)).find("\"extra\" f32[10] exists only at the target"),
            std::string::npos);
  EXPECT_TRUE(match_plan(plan, more, false).has_value());
}

TEST(Plan, AllDifferencesAreReportedTogether) {
  const Plan plan = build({tensor("gone", 1, 0, 1000), tensor("w", 1, 4000, 1000)});
  auto other = tensor("w", 1, 0, 1000);
  other.dtype = CKPT_I32;
  const std::string reason = refusal(match_plan(plan, std::vector{other, tensor("more", 1, 4000, 10)}, true));
  for (const char* part : {"\"gone\" f32[1000] does not exist at the target",
                           "\"w\" is f32[1000] at the source", "\"more\" f32[10] exists only at the target"})
    EXPECT_NE(reason.find(part), std::string::npos) << reason;
}

TEST(Plan, ANewProgramMayLackTensorsAndHaveOtherTensors) {
  const Plan plan = build({tensor("gone", 1, 0, 1000), tensor("gone.view", 1, 400, 100),
                           tensor("kept", 1, 4000, 10), tensor("w", 1, 8000, 1000)});
  auto other = tensor("w", 7, 0, 1000);
  other.dtype = CKPT_I32;
  const auto standby = std::vector{other, tensor("kept", 8, 64, 10), tensor("more", 9, 0, 10)};
  const auto match = match_plan(plan, standby, true, wire::kAllowAll);
  ASSERT_TRUE(match.has_value()) << match.error().to_string();
  ASSERT_EQ(match->places.size(), 1u);
  EXPECT_EQ(match->places[0].region, 8u);
  ASSERT_EQ(match->dropped.size(), 2u);
  EXPECT_EQ(match->dropped[0].bytes, 4000u);
  EXPECT_EQ(match->differences.size(), 4u);
  for (const std::uint8_t lacks : {wire::kAllowMissing, wire::kAllowNew, wire::kAllowChanged})
    EXPECT_FALSE(match_plan(plan, standby, true, wire::kAllowAll & ~lacks).has_value()) << int{lacks};
}

TEST(Plan, ATensorWithinADroppedTensorIsRefused) {
  const Plan plan = build({tensor("gone", 1, 0, 1000), tensor("view", 1, 400, 100)});
  EXPECT_NE(refusal(match_plan(plan, std::vector{tensor("view", 8, 0, 100)}, true, wire::kAllowAll))
                .find("\"view\" lies within \"gone\" at the source"),
            std::string::npos);
}

TEST(Plan, SharedMemoryMustMatchOnBothSides) {
  const Plan tied = build({tensor("in", 1, 0, 1000), tensor("out", 1, 0, 1000)});
  EXPECT_NE(
      refusal(match_plan(tied, std::vector{tensor("in", 1, 0, 1000), tensor("out", 1, 4000, 1000)}, true))
          .find("at the source but not at the target"),
      std::string::npos);
  const Plan apart = build({tensor("in", 1, 0, 1000), tensor("out", 1, 4000, 1000)});
  EXPECT_NE(refusal(match_plan(apart, std::vector{tensor("in", 1, 0, 1000), tensor("out", 1, 0, 1000)}, true))
                .find("at the target but not at the source"),
            std::string::npos);
}

TEST(Plan, PlanIsDecodedAsEncodedAndValidated) {
  const Plan plan = build({tensor("a", 1, 0, 1000), tensor("b", 1, 4000, 10), tensor("tied", 1, 0, 1000)});
  const auto bytes = wire::encode(plan);
  auto again = decode_plan(bytes);
  ASSERT_TRUE(again.has_value()) << again.error().to_string();
  EXPECT_EQ(again->extents.size(), 2u);

  Plan forged = plan;
  forged.extents[0].bytes = 1 << 20;  // more bytes than the tensor has; the extent would write past the
                                      // tensor
  EXPECT_FALSE(decode_plan(wire::encode(forged)).has_value());
  forged = plan;
  forged.tensors[0].bytes = 1 << 20;
  EXPECT_FALSE(decode_plan(wire::encode(forged)).has_value());
  forged = plan;
  forged.extents[1].tensor = 77;
  EXPECT_FALSE(decode_plan(wire::encode(forged)).has_value());
  forged = plan;
  forged.format = 9;
  auto newer = decode_plan(wire::encode(forged));
  ASSERT_FALSE(newer.has_value());
  EXPECT_EQ(newer.error().code(), ErrorCode::kNotSupported);
}

TEST(Plan, RandomDamageNeverGivesAnInvalidPlan) {
  const auto bytes =
      wire::encode(build({tensor("a", 1, 0, 1000), tensor("b", 1, 4000, 10), tensor("c", 2, 0, 9)}));
  const std::vector<wire::TensorInfo> standby{tensor("a", 1, 0, 1000), tensor("b", 1, 4000, 10),
                                              tensor("c", 2, 0, 9)};
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    auto damaged = bytes;
    for (unsigned flips = 1 + random() % 3; flips > 0; --flips)
      damaged[random() % damaged.size()] ^= static_cast<std::byte>(1u << (random() % 8));
    if (random() % 4 == 0) damaged.resize(random() % damaged.size());
    auto plan = decode_plan(damaged);
    if (!plan) continue;
    auto places = match_plan(*plan, standby, true);
    if (!places) continue;
    for (const Place& place : places->places) {
      const bool known = (place.region == 1 && place.offset + place.bytes <= 4040) ||
                         (place.region == 2 && place.offset + place.bytes <= 36);
      ASSERT_TRUE(known) << "a place outside of the standby's tensors";
    }
  }
}

TEST(Manifest, ManifestIsValidOnlyForTheSameRootAndHostState) {
  track::FingerprintKey key{};
  const auto params = track::FingerprintParams::expand(key, track::FingerprintPurpose::kChunks);
  std::vector<std::byte> host(1000, std::byte{7});
  const track::Fingerprint own = track::fingerprint(*params, host);
  const track::Fingerprint root{11, 22};
  Manifest manifest;
  manifest.root_lo = 11;
  manifest.root_hi = 22;
  manifest.host_state_bytes = host.size();
  manifest.host_state_lo = own.lo;
  manifest.host_state_hi = own.hi;
  auto decoded = decode_manifest(wire::encode(manifest));
  ASSERT_TRUE(decoded.has_value());
  const auto sum_of = [&params](std::span<const std::byte> bytes) {
    return HostStateSum{bytes.size(), track::fingerprint(*params, bytes)};
  };
  EXPECT_TRUE(check_manifest(*decoded, root, sum_of(host)).has_value());
  EXPECT_FALSE(check_manifest(manifest, track::Fingerprint{11, 23}, sum_of(host)).has_value());
  host[999] = std::byte{8};
  EXPECT_FALSE(check_manifest(manifest, root, sum_of(host)).has_value());
  host.pop_back();
  EXPECT_FALSE(check_manifest(manifest, root, sum_of(host)).has_value());
}

TEST(Manifest, ExtentsOutOfOrderAreRefused) {
  Manifest manifest;
  ManifestExtent extent;
  extent.id = 5;
  extent.generation = 1;
  extent.bytes = 10;
  manifest.extents = {extent, extent};
  EXPECT_FALSE(decode_manifest(wire::encode(manifest)).has_value());
  manifest.extents = {extent};
  EXPECT_TRUE(decode_manifest(wire::encode(manifest)).has_value());
}

}  // namespace
}  // namespace ckpt::image
