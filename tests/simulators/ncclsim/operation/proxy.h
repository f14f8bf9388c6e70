// SPDX-License-Identifier: Apache-2.0
// The thread of a communicator that does its operations with the peers, one group after the other, in the
// order in which they were issued. It calls no function of the driver.
//
// An error stays: from then on nothing is done, and streams wait as they do for NCCL's kernels, until stop().
// Threads: any. Ownership: the proxy shares each batch until it is done.
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
  // Runs it once its streams have come to it.
  void submit(std::shared_ptr<Batch> batch);
  // From a host node of a graph: runs it before what has been submitted and whose streams have not come.
  // Returns when it is done, or when the proxy was stopped.
  void run_now(Batch* batch);
  // Until nothing is outstanding. Errors: the proxy's own; ncclInternalError: stopped.
  ncclResult_t drain();
  // Ends what runs and lets all streams pass, now and from now on.
  void stop();
  [[nodiscard]] ncclResult_t error() const { return error_.load(); }

 private:
  struct Entry {
    std::shared_ptr<Batch> batch;  // of a stream
    Batch* captured = nullptr;     // of a graph
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
  long look_nanoseconds_ = 0;  // of the thread alone
  std::thread thread_;
};

}  // namespace ncclsim
