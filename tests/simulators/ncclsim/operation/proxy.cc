// SPDX-License-Identifier: Apache-2.0
#include "tests/simulators/ncclsim/operation/proxy.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <time.h>

#include <algorithm>
#include <utility>

namespace ncclsim {
namespace {

// Intervals between polls of a word that a stream writes, since such a write wakes no thread. The interval
// grows while the word does not change.
constexpr long kLookNanoseconds = 20000;
constexpr long kMaxLookNanoseconds = 500000;

}  // namespace

Proxy::Proxy(const World& world, const std::string& communicator)
    : world_(world), faults_(world.rank, communicator), woken_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  progress_.sent.resize(static_cast<std::size_t>(world.ranks));
  progress_.received.resize(static_cast<std::size_t>(world.ranks));
}

Proxy::~Proxy() {
  stop();
  if (thread_.joinable()) thread_.join();
}

void Proxy::start() {
  look_nanoseconds_ = kLookNanoseconds;
  thread_ = std::thread([this] { work(); });
}

void Proxy::submit(std::shared_ptr<Batch> batch) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (stop_.is_set()) return let_pass(*batch);
    auto entry = std::make_shared<Entry>();
    entry->batch = std::move(batch);
    entries_.push_back(std::move(entry));
  }
  wake();
}

void Proxy::run_now(Batch* batch) {
  auto entry = std::make_shared<Entry>();
  entry->captured = batch;
  std::unique_lock<std::mutex> lock(mutex_);
  entries_.push_front(entry);
  wake();
  changed_.wait(lock, [&] { return entry->done || stop_.is_set(); });
  // The graph owns the batch, so the proxy must no longer use the batch.
  changed_.wait(lock, [&] { return running_ != entry; });
  std::erase(entries_, entry);
}

ncclResult_t Proxy::drain() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] {
    return (entries_.empty() && running_ == nullptr) || error_ != ncclSuccess || stop_.is_set();
  });
  if (error_ != ncclSuccess) return error_;
  NCCLSIM_CHECK(!stop_.is_set(), ncclInternalError, "aborted");
  return ncclSuccess;
}

void Proxy::stop() {
  stop_.set();
  std::lock_guard<std::mutex> lock(mutex_);
  for (const std::shared_ptr<Entry>& entry : entries_) {
    if (entry->batch != nullptr) let_pass(*entry->batch);
  }
  entries_.clear();
  changed_.notify_all();
}

void Proxy::work() {
  while (!stop_.is_set()) {
    const std::shared_ptr<Entry> entry = next();
    apply_faults();  // faults that were ordered before the operation arrived apply to it
    if (entry != nullptr) {
      do_entry(entry);
      look_nanoseconds_ = kLookNanoseconds;
    } else {
      wait_for_work();
    }
  }
}

void Proxy::wait_for_work() {
  bool outstanding = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    outstanding = error_ == ncclSuccess && !entries_.empty();
  }
  pollfd polled[3] = {
      {stop_.descriptor(), POLLIN, 0}, {woken_.get(), POLLIN, 0}, {faults_.descriptor(), POLLIN, 0}};
  const timespec look{0, look_nanoseconds_};
  look_nanoseconds_ = std::min(look_nanoseconds_ * 2, kMaxLookNanoseconds);
  ::ppoll(polled, 3, outstanding ? &look : nullptr, nullptr);
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(woken_.get(), &count, sizeof count);
}

std::shared_ptr<Proxy::Entry> Proxy::next() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (error_ != ncclSuccess || stop_.is_set() || entries_.empty()) return nullptr;
  const std::shared_ptr<Entry>& first = entries_.front();
  if (first->batch != nullptr && !is_ready(*first->batch)) return nullptr;
  running_ = first;
  entries_.pop_front();
  return running_;
}

void Proxy::do_entry(const std::shared_ptr<Entry>& entry) {
  Batch* batch = entry->captured != nullptr ? entry->captured : entry->batch.get();
  ncclResult_t result = error_;
  if (result == ncclSuccess) result = run(batch, world_, &progress_, {&stop_, Clock::time_point::max()});
  std::lock_guard<std::mutex> lock(mutex_);
  running_ = nullptr;
  if (result == ncclSuccess) {
    entry->done = true;
    if (entry->batch != nullptr) let_pass(*entry->batch);
  } else if (!stop_.is_set()) {
    error_ = result;
    if (entry->batch != nullptr) entries_.push_front(entry);  // the streams of the batch wait
  } else if (entry->batch != nullptr) {
    let_pass(*entry->batch);
  }
  changed_.notify_all();
}

void Proxy::apply_faults() {
  for (const Fault& fault : faults_.take()) {
    if (fault.kind == Fault::Kind::kDropPeer)
      world_.mesh->drop(static_cast<int>(std::min<std::int64_t>(fault.value, kMaxRanks)));
    if (fault.kind != Fault::Kind::kAsyncError || fault.value == 0 || fault.value >= ncclNumResults) continue;
    std::lock_guard<std::mutex> lock(mutex_);
    if (error_ != ncclSuccess) continue;
    error_ = fail(static_cast<ncclResult_t>(fault.value), "an error that NCCLSIM_FAULTS orders");
    changed_.notify_all();
  }
}

void Proxy::wake() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(woken_.get(), &one, sizeof one);
}

bool Proxy::is_ready(const Batch& batch) {
  return std::all_of(batch.parts.begin(), batch.parts.end(), [](const Part& part) {
    return part.block->words().ready.load(std::memory_order_acquire) == part.block->use;
  });
}

void Proxy::let_pass(const Batch& batch) {
  for (const Part& part : batch.parts)
    part.block->words().finished.store(part.block->use, std::memory_order_release);
}

}  // namespace ncclsim
