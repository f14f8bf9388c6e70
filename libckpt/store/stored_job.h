// SPDX-License-Identifier: Apache-2.0
// The record of a job in a version of a vault (vault::Version::job_record): how to start the job again, and
// where its memory belongs. Region i of the version is extent i of the plan.
// Threads: values, pure functions. Errors: kCorrupt for bytes that are no such record, kNotSupported for a
// newer one.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "libckpt/base/result.h"
#include "libckpt/protocol/wire/job_messages.h"
#include "libckpt/store/plan.h"

namespace ckpt::image {

inline constexpr std::uint32_t kStoredJobFormat = 1;
// The blob with the host state of rank 0: what the program named (cooperative), or CRIU's image of the
// process.
inline constexpr const char* kHostBlob = "rank.0.host";

struct StoredJob {
  static constexpr std::uint8_t kVersion = 3, kCompat = 1;
  std::uint32_t format = kStoredJobFormat;
  wire::JobSpec spec;
  std::string node;       // where it was taken
  std::string gpu_model;  // as NVML names it
  wire::Bytes payload;    // of the migration mode: the process's open files, if the image has a process
  Plan plan;
  std::uint64_t sequence = 0;  // the coordinator's count of images (wire::TakeSnapshot); 0: of an older build
  std::uint64_t set = 0;       // of a gang's images of one barrier (wire::TakeSnapshot)
  template <class A>
  decltype(auto) fields(A& a) {
    return a(format, spec, node, gpu_model, payload, plan, sequence, set);
  }
};

// Also checks that the plan follows from its tensors.
Result<StoredJob> decode_stored_job(std::span<const std::byte> bytes);

}  // namespace ckpt::image
