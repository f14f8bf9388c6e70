// SPDX-License-Identifier: Apache-2.0
// The thread of a communicator that runs its operations with the peers, one group after the other, in the
// order of issue. It calls no function of the driver.
//
// An error is permanent: no further operation runs, and streams wait until stop(), as they wait for NCCL's
// kernels.
// Threads: any. Ownership: the proxy shares each batch until the batch is done.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "tests/simulators/ncclsim/base/faults.h"
#include "tests/simulators/ncclsim/operation/batch.h"
#include "tests/simulators/ncclsim/transport/bootstrap.h"

namespace ncclsim {

class Proxy {
 public:
  Proxy(const World& world, const std::string& communicator);
  ~Proxy();
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;

  void start();
  // Runs the batch once its streams have reached it.
  void submit(std::shared_ptr<Batch> batch);
  // Runs a batch from a host node of a graph, ahead of submitted batches whose streams have not reached them.
  // Returns when the batch is done, or when the proxy was stopped.
  void run_now(Batch* batch);
  // Waits until nothing is outstanding. Errors: the proxy's own; ncclInternalError: stopped.
  ncclResult_t drain();
  // Ends the running operation, and unblocks all current and future streams.
  void stop();
  [[nodiscard]] ncclResult_t error() const { return error_.load(); }

 private:
  struct Entry {
    std::shared_ptr<Batch> batch;  // a batch of a stream
    Batch* captured = nullptr;     // a batch of a graph
    bool done = false;
  };
  void work();
  void wait_for_work();
  std::shared_ptr<Entry> next();
  void do_entry(const std::shared_ptr<Entry>& entry);
  void apply_faults();
  void wake();
  static bool is_ready(const Batch& batch);
  static void let_pass(const Batch& batch);

  World world_;
  Progress progress_;
  Faults faults_;
  Stop stop_;
  Descriptor woken_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Entry>> entries_;
  std::shared_ptr<Entry> running_;
  std::atomic<ncclResult_t> error_{ncclSuccess};
  long look_nanoseconds_ = 0;  // used only by the proxy's thread
  std::thread thread_;
};

}  // namespace ncclsim
