// SPDX-License-Identifier: Apache-2.0
#include "libckpt/include/ckpt/ckpt.h"
#include "libckpt/store/manifest.h"
#include "libckpt/store/peer/file_messages.h"
#include "libckpt/store/plan.h"
#include "libckpt/store/stored_job.h"
#include "tests/fuzz/seeds/filler.h"
#include "tests/fuzz/seeds/seeds.h"

namespace ckpt::fuzz {
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

}  // namespace

void add_images(Corpus& corpus) {
  const std::vector<std::vector<wire::TensorInfo>> choices{
      {tensor("a", 1, 0, 1000)},
      {tensor("a", 1, 0, 1000), tensor("tied", 1, 0, 1000), tensor("view", 1, 400, 100),
       tensor("b", 2, 64, 10)},
      {tensor("s", 1, 0, 1000, CKPT_SCRATCH), tensor("host", wire::kNoRegion, 0, 4)},
      {}};
  for (const auto& tensors : choices)
    corpus.add_numbered(
        "image_plans",
        std::string(1, '\0') + bytes_text(wire::encode(image::build_plan(tensors, 1 << 16, 1, 1).value())));
  image::Manifest manifest;
  corpus.add_numbered("image_plans", "\1" + bytes_text(wire::encode(manifest)));
  for (std::uint64_t id = 1; id < 4; ++id) {
    image::ManifestExtent& extent = manifest.extents.emplace_back();
    extent.id = id;
    extent.generation = 1;
    extent.bytes = 4096;
  }
  manifest.host_state_bytes = 100;
  corpus.add_numbered("image_plans", "\1" + bytes_text(wire::encode(manifest)));
  auto job = filled<image::StoredJob>();
  job.format = image::kStoredJobFormat;
  job.plan = image::build_plan(choices[1], 1 << 16, 1, 1).value();
  corpus.add_numbered("image_plans", "\2" + bytes_text(wire::encode(job)));
}

void add_checkpoint_store_requests(Corpus& corpus) {
  using namespace checkpoint_store;
  const auto add = [&corpus](const auto& message) {
    corpus.add_numbered("vault_requests", "m" + bytes_text(wire::encode(message)));
  };
  add(filled<FileHello>());
  for (std::uint8_t op = 1; is_known(static_cast<FileOp>(op)); ++op) {
    auto request = filled<FileRequest>();
    request.op = static_cast<FileOp>(op);
    add(request);
  }
  add(filled<FileReply>());
}

}  // namespace ckpt::fuzz
