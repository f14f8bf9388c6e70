// SPDX-License-Identifier: Apache-2.0
// The record of a job in a version of a checkpoint store (checkpoint_store::Version::job_record): how to
// start the job again, and the places of its memory. Region i of the version is extent i of the plan.
// Threads: plain values, pure functions. Errors: kCorrupt for bytes that are not such a record, kNotSupported
// for a newer one.
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
// The blob with the host state of rank 0: the named host data (cooperative), or CRIU's image of the process.
inline constexpr const char* kHostBlob = "rank.0.host";

struct StoredJob {
  static constexpr std::uint8_t kVersion = 3, kCompat = 1;
  std::uint32_t format = kStoredJobFormat;
  wire::JobSpec spec;
  std::string node;       // the node where the image was taken
  std::string gpu_model;  // the GPU's model in NVML's notation
  wire::Bytes payload;    // data of the migration mode: the process's open files, if the image has a process
  Plan plan;
  std::uint64_t sequence = 0;  // the number of the image in the coordinator's count (wire::TakeSnapshot); 0
                               // from an older build
  std::uint64_t set = 0;       // the set of a gang's images of one barrier (wire::TakeSnapshot)
  template <class A>
  decltype(auto) fields(A& a) {
    return a(format, spec, node, gpu_model, payload, plan, sequence, set);
  }
};

// Decodes a record. Also checks that the plan is derived from its tensors.
Result<StoredJob> decode_stored_job(std::span<const std::byte> bytes);

}  // namespace ckpt::image
