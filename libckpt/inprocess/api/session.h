// SPDX-License-Identifier: Apache-2.0
// The runtime in a rank's process, behind ckpt.h. Without a keeper it only maintains the tables. With a
// keeper, a service thread answers keeper and agent while the program runs, and barrier() and ready() pause
// and resume the program.
// Threads: any; one mutex. While the rank is paused (frozen_), calls that change tables wait. The service
// thread blocks all signals. A rank that loses its keeper kills itself, because no process could enforce its
// lease any more. Ownership: all of this process's part; one Session per process. Errors: see ckpt.h.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"
#include "libckpt/inprocess/api/device_state.h"
#include "libckpt/inprocess/api/groups.h"
#include "libckpt/inprocess/api/host_states.h"
#include "libckpt/inprocess/local/export_stream.h"
#include "libckpt/inprocess/local/keeper_link.h"

namespace ckpt::job {

enum class BarrierEnd { kGoOn, kMoved };

class Session {
 public:
  // Connects to the keeper at `socket_path`. An empty path means that there is no keeper.
  static Result<std::unique_ptr<Session>> create(const std::string& socket_path, bool return_moved);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  [[nodiscard]] local::Role role() const;
  // Returns a word that is nonzero if barrier() has work to do.
  [[nodiscard]] const std::atomic<std::uint32_t>* request_word() const;

  Result<CUdeviceptr> allocate(std::uint64_t bytes);
  Result<void> free(CUdeviceptr pointer);
  Result<void> name_tensor(Tensor tensor);
  Result<void> drop_tensor(const std::string& name);
  Result<void> add_host_memory(std::string name, void* pointer, std::uint64_t bytes);
  Result<void> add_host_callbacks(std::string name, ckpt_save_fn save, ckpt_load_fn load, void* user);
  Result<void> add_group(std::string name, std::vector<std::uint32_t> members, const ckpt_group_ops& ops,
                         void* user);
  // Returns the rank's number and the number of ranks. After the call, the program counts as able to handle
  // moves of ranks.
  std::pair<std::uint32_t, std::uint32_t> gang();
  Result<ckpt_start> ready();
  Result<BarrierEnd> barrier();

 private:
  struct ResumeOrder {
    std::uint64_t request = 0;
    local::Resume resume;
    UniqueFd host_state;
  };

  Session(std::unique_ptr<local::KeeperLink> link, bool return_moved)
      : link_(std::move(link)), return_moved_(return_moved), groups_([this](auto request, auto body) {
          // The result is ignored: if the keeper has exited, the service thread detects that.
          (void)send(request, std::move(body)).has_value();
        }) {}
  Result<void> start_service();

  // Defined in session.cc. `lock` holds mutex_.
  void wait_until_thawed(std::unique_lock<std::mutex>& lock);
  Result<void> send(std::uint64_t request, local::Body body, std::span<const int> descriptors = {});

  // Defined in pause.cc.
  Result<BarrierEnd> pause(std::uint64_t request, Nanos entered, std::uint64_t barrier);
  Result<void> send_paused(std::uint64_t request, Nanos entered, std::uint64_t barrier);
  Result<ckpt_start> wait_as_standby();
  Result<void> apply(const ResumeOrder& order);
  std::optional<ResumeOrder> wait_for_order();
  Result<void> send_running(const ResumeOrder& order);
  Result<void> take_over(const ResumeOrder& order);

  // Defined in service.cc. The functions run on the service thread, except pump_exports.
  void serve();
  void handle(local::Received received);
  Result<void> send_tables(std::uint64_t request, bool with_regions);
  local::StateSummary summary() const;
  Result<void> describe(std::uint64_t request);
  Result<void> start_export(std::uint64_t request);
  Result<void> pump_exports();
  Result<void> send_batch(const local::ExportStream::Batch& batch);
  [[noreturn]] void die_without_keeper(const std::string& reason);

  std::unique_ptr<local::KeeperLink> link_;
  const bool return_moved_;
  UniqueFd wake_;  // an eventfd that tells the service thread to exit
  std::thread service_;

  std::mutex mutex_;
  std::condition_variable changed_;
  DeviceState device_;
  HostStates host_;
  local::ExportStream exports_;
  bool ready_ = false;
  bool frozen_ = false;  // whether the rank is paused, so that tables must not change
  bool moved_ = false;
  std::uint64_t failed_pause_ = 0;  // a pause that was answered with Failed and may still be requested
  std::optional<ResumeOrder> order_;
  Groups groups_;  // declared last, because its thread sends through this session
};

}  // namespace ckpt::job
