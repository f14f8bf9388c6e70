// SPDX-License-Identifier: Apache-2.0
#include "libckpt/store/stored_job.h"

namespace ckpt::image {

Result<StoredJob> decode_stored_job(std::span<const std::byte> bytes) {
  auto decoded = wire::decode<StoredJob>(bytes);
  if (!decoded)
    return Error(ErrorCode::kCorrupt, "The version's record of its job cannot be read")
        .caused_by(std::move(decoded).error());
  StoredJob job = *std::move(decoded);
  if (job.format != kStoredJobFormat)
    return Error(ErrorCode::kNotSupported,
                 "The job was stored in format " + std::to_string(job.format) + " by a newer build");
  auto plan = decode_plan(wire::encode(job.plan));
  if (!plan)
    return Error(ErrorCode::kCorrupt, "The version's plan is inconsistent")
        .caused_by(std::move(plan).error());
  return job;
}

}  // namespace ckpt::image
