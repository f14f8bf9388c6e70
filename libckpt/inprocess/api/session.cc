// SPDX-License-Identifier: Apache-2.0
#include "libckpt/inprocess/api/session.h"

#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <utility>

#include "libckpt/base/fault.h"
#include "libckpt/base/program_fd.h"

namespace ckpt::job {
namespace {

// The request word that ckpt_barrier reads in a process without a keeper.
const std::atomic<std::uint32_t> kNothingAsked{0};
const std::atomic<std::uint32_t> kAlways{1};  // a word that is always nonzero, because each barrier is
                                              // counted

Error inside_callback() {
  return Error(ErrorCode::kInvalidArgument,
               "A save or load callback must not use the session; it may only call ckpt_write");
}

}  // namespace

Result<std::unique_ptr<Session>> Session::create(const std::string& socket_path, bool return_moved) {
  std::unique_ptr<local::KeeperLink> link;
  if (!socket_path.empty()) {
    CKPT_TRY(connected, local::KeeperLink::connect(socket_path));
    link = std::move(connected);
    const local::Welcome& welcome = link->welcome();
    // The role has no tag of the job's id, because a test names its crash points before the tag is drawn.
    const std::string job = welcome.job.str();
    set_fault_role("rank." + job.substr(0, job.find('-', 2)) +
                   (welcome.role == local::Role::kStandby ? ".standby" : ".fresh"));
  }
  std::unique_ptr<Session> session(new Session(std::move(link), return_moved));
  if (session->link_) {
    CKPT_TRYV(session->start_service());
  }
  return session;
}

Result<void> Session::start_service() {
  wake_ = move_beyond_program(UniqueFd(::eventfd(0, EFD_CLOEXEC)));
  if (!wake_) return Error::from_errno("eventfd");
  sigset_t all;
  sigset_t former;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &former);
  service_ = std::thread([this] { serve(); });
  ::pthread_sigmask(SIG_SETMASK, &former, nullptr);
  ::pthread_setname_np(service_.native_handle(), "ckpt-service");
  return ok();
}

Session::~Session() {
  if (!service_.joinable()) return;
  const std::uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
  service_.join();
}

local::Role Session::role() const {
  return link_ ? link_->welcome().role : local::Role::kFresh;
}

const std::atomic<std::uint32_t>* Session::request_word() const {
  if (!link_) return &kNothingAsked;
  return link_->counts_barriers() ? &kAlways : &link_->page().page().request;
}

void Session::wait_until_thawed(std::unique_lock<std::mutex>& lock) {
  changed_.wait(lock, [this] { return !frozen_; });
}

Result<void> Session::send(std::uint64_t request, local::Body body, std::span<const int> descriptors) {
  if (!link_) return ok();
  return link_->send(request, std::move(body), descriptors);
}

Result<CUdeviceptr> Session::allocate(std::uint64_t bytes) {
  if (in_callback()) return inside_callback();
  std::unique_lock lock(mutex_);
  for (;;) {
    wait_until_thawed(lock);
    Result<Region> region = device_.allocate(bytes);
    if (region.has_value()) {
      exports_.region_added(region->id);
      CKPT_TRYV(pump_exports());
      return static_cast<CUdeviceptr>(region->pointer);
    }
    const bool mover_holds_memory = exports_.waits_for_frees();
    if (region.error().code() != ErrorCode::kOutOfMemory || !mover_holds_memory) {
      return std::move(region).error();
    }
    changed_.wait(lock, [this] { return !exports_.waits_for_frees(); });
  }
}

Result<void> Session::free(CUdeviceptr pointer) {
  if (in_callback()) return inside_callback();
  std::unique_lock lock(mutex_);
  wait_until_thawed(lock);
  CKPT_TRY(region, device_.check_free(pointer));
  device_.free(region);
  if (exports_.region_freed(region.id, region.generation)) {
    CKPT_TRYV(send(exports_.request(), local::RegionFreed{region.id, region.generation}));
  }
  return ok();
}

Result<void> Session::name_tensor(Tensor tensor) {
  if (in_callback()) return inside_callback();
  std::unique_lock lock(mutex_);
  wait_until_thawed(lock);
  CKPT_TRY(named, device_.name(std::move(tensor)));
  if (!exports_.active()) return ok();
  if (named.new_region) exports_.region_added(named.new_region->id);
  CKPT_TRYV(send(exports_.request(), local::Tensors{{named.record}}));
  return pump_exports();
}

Result<void> Session::drop_tensor(const std::string& name) {
  if (in_callback()) return inside_callback();
  std::unique_lock lock(mutex_);
  wait_until_thawed(lock);
  CKPT_TRY(gone, device_.drop(name));
  if (!exports_.active()) return ok();
  CKPT_TRYV(send(exports_.request(), local::TensorDropped{local::Name(name)}));
  if (gone && exports_.region_freed(gone->id, gone->generation)) {
    CKPT_TRYV(send(exports_.request(), local::RegionFreed{gone->id, gone->generation}));
  }
  return ok();
}

Result<void> Session::add_group(std::string name, std::vector<std::uint32_t> members,
                                const ckpt_group_ops& ops, void* user) {
  if (in_callback()) return inside_callback();
  return groups_.add(std::move(name), std::move(members), ops, user);
}

std::pair<std::uint32_t, std::uint32_t> Session::gang() {
  groups_.know_gang();
  return {groups_.rank(), groups_.ranks()};
}

Result<void> Session::add_host_memory(std::string name, void* pointer, std::uint64_t bytes) {
  if (in_callback()) return inside_callback();
  std::unique_lock lock(mutex_);
  wait_until_thawed(lock);
  return host_.add_memory(std::move(name), pointer, bytes);
}

Result<void> Session::add_host_callbacks(std::string name, ckpt_save_fn save, ckpt_load_fn load, void* user) {
  if (in_callback()) return inside_callback();
  std::unique_lock lock(mutex_);
  wait_until_thawed(lock);
  return host_.add_callbacks(std::move(name), save, load, user);
}

}  // namespace ckpt::job
