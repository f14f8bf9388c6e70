// SPDX-License-Identifier: Apache-2.0
// The communicator: the object behind an ncclComm_t.
//
// Threads: as NCCL allows: one at a time, except for ncclCommAbort and ncclCommGetAsyncError. Ownership: the
// program's, until destroy() or abort(). A list of all communicators identifies valid handles. Errors:
// NCCL's. While a job runs in the background the state is ncclInProgress.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/simulators/ncclsim/driver/device_memory.h"
#include "tests/simulators/ncclsim/operation/proxy.h"
#include "tests/simulators/ncclsim/transport/bootstrap.h"

namespace ncclsim {

struct Config {
  bool blocking = true;
  std::string name;
};
// Checks the program's configuration as NCCL does. A null pointer leaves `out` unchanged.
ncclResult_t read_config(const ncclConfig_t* given, Config* out);

// Graphs that have captured operations of a communicator. They may outlive every other use of the
// communicator.
class CapturedGraphs {
 public:
  void add();
  void remove();
  void wait_for_none();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int count_ = 0;
};

// The job of a communicator within a group or in the background: one at a time. end() is a job's last use of
// the communicator, which another thread may then free.
class JobState {
 public:
  // Waits for the previous job, and begins a new job.
  void begin();
  void end(ncclResult_t result);
  void wait();
  // Returns ncclInProgress, or the result of the last job.
  [[nodiscard]] ncclResult_t state() const { return state_; }

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  std::atomic<ncclResult_t> state_{ncclSuccess};
};

struct Communicator {
  Communicator(CUcontext its_context, CUdevice its_device) : context(its_context), device(its_device) {}

  Config config;
  CUcontext context;
  CUdevice device;
  int rank = 0;
  int ranks = 1;
  std::uint64_t secret = 0;
  std::vector<RankInfo> table;
  Mesh data;
  Mesh control;
  std::unique_ptr<Proxy> proxy;
  // The proxy once it is complete, for threads that do not know whether it is complete.
  std::atomic<Proxy*> working{nullptr};
  std::unique_ptr<DeviceMemory> memory;
  std::vector<std::unique_ptr<DeviceMemory>> imports;
  std::shared_ptr<CapturedGraphs> graphs = std::make_shared<CapturedGraphs>();
  std::map<int, std::pair<ncclDataType_t, Reduction>> operators;  // the program's own operators
  int next_operator = 0;
  std::map<void*, std::unique_ptr<char>> registered;  // registrations by the handle that the program received
  std::mutex launches;
  std::shared_ptr<JobState> job = std::make_shared<JobState>();

  Stop aborted;
  std::atomic<bool> finalized{false};
  std::atomic<bool> revoked{false};
  std::uint64_t control_number = 0;  // number of exchanges over `control`

  [[nodiscard]] ncclResult_t async_error() const;
  // Returns ncclInvalidArgument while an operation is in progress; otherwise returns the communicator's
  // error.
  [[nodiscard]] ncclResult_t ensure_ready() const;
  // Closes everything that the communicator owns. Call this without a job and without a graph.
  void take_down();
};

ncclComm_t enlist(Communicator* communicator);
void strike(Communicator* communicator);
// Finds the communicator of a handle. Errors: ncclInvalidArgument: the handle is invalid.
ncclResult_t find(ncclComm_t handle, Communicator** out);

}  // namespace ncclsim
