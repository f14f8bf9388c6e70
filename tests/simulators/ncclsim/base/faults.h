// SPDX-License-Identifier: Apache-2.0
// Faults that are injected from outside, by the environment or by lines of the file NCCLSIM_FAULTS
// (README.md). The file is watched: each time the file is written, its lines take effect again.
//
// Threads: one for each object. Errors: an invalid line is ignored with a warning.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/simulators/ncclsim/base/result.h"

namespace ncclsim {

struct Fault {
  enum class Kind { kInitDelay, kInitEndless, kAsyncError, kDropPeer };
  Kind kind = Kind::kInitDelay;
  std::int64_t value = 0;
};

// Returns the delay in ms of a communicator that is being created; -1: an infinite delay.
std::int64_t init_delay(int rank, const std::string& communicator);

// The faults of a communicator that has been created.
class Faults {
 public:
  Faults(int rank, std::string communicator);
  ~Faults();
  Faults(const Faults&) = delete;
  Faults& operator=(const Faults&) = delete;

  // Returns a descriptor that is readable when the file may have changed; -1: no file is watched.
  [[nodiscard]] int descriptor() const { return watch_; }
  // Returns the lines that concern the communicator, if the file has been written since the last call.
  std::vector<Fault> take();

 private:
  int rank_;
  std::string communicator_;
  int watch_ = -1;
  bool fresh_ = false;
};

}  // namespace ncclsim
