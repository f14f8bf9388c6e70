// SPDX-License-Identifier: Apache-2.0
// The named tensors of a rank and the places of their bytes. A tensor may lie inside another (views, tied
// weights) but must not partly overlap another.
// Threads: no lock inside; the session locks. Errors: kInvalidArgument with the tensors' names.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "libckpt/base/result.h"
#include "libckpt/include/ckpt/ckpt.h"
#include "libckpt/inprocess/local/messages.h"

namespace ckpt::job {

struct Tensor {
  std::string name;
  std::uint64_t pointer = 0;
  std::uint64_t bytes = 0;
  ckpt_dtype dtype{};
  ckpt_kind kind{};
  std::vector<std::uint64_t> shape;
  std::uint64_t region = local::kNoRegion;
  std::uint64_t offset = 0;  // the offset in the region

  [[nodiscard]] bool travels_with_host_state() const {
    return region == local::kNoRegion && kind != CKPT_SCRATCH;
  }
};

[[nodiscard]] local::TensorRecord to_record(const Tensor& tensor);

class TensorTable {
 public:
  Result<void> add(Tensor tensor);
  bool remove(const std::string& name);

  [[nodiscard]] const Tensor* find(const std::string& name) const;
  [[nodiscard]] const Tensor* any_in_region(std::uint64_t region) const;
  [[nodiscard]] const std::map<std::string, Tensor>& by_name() const { return by_name_; }

  // Returns the size of the union of all tensors that are copied out of regions.
  [[nodiscard]] std::uint64_t state_bytes() const;
  [[nodiscard]] std::uint64_t unexportable_bytes() const;
  // Returns the largest tensor that travels with the host state, or nullptr.
  [[nodiscard]] const Tensor* largest_unexportable() const;

 private:
  std::map<std::string, Tensor> by_name_;
};

}  // namespace ckpt::job
