// SPDX-License-Identifier: Apache-2.0
#include "tests/programs/stress/worker.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>

#include "tests/programs/stress/worker_detail.h"

namespace ckpt::examples {
namespace {

constexpr std::uint64_t kCollectEvery = 8;               // interval in steps; limits the work in flight
constexpr std::uint64_t kPage = std::uint64_t{2} << 20;  // page size of physical memory

CUmemoryPool make_pool(const OptionalDriver& driver) {
  CUmemoryPool pool = nullptr;
  if (!driver.pools) return pool;
  CUdevice device = 0;
  check(cuCtxGetDevice(&device), "cuCtxGetDevice");
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
  check(driver.cuMemPoolCreate(&pool, &properties), "cuMemPoolCreate");
  return pool;
}

}  // namespace

Worker::Worker(const Plan& plan, const OptionalDriver& driver)
    : plan_(plan),
      driver_(driver),
      random_(plan.seed),
      kernels_(kModule),
      fill_(kernels_["fill"]),
      verify_(kernels_["verify"]),
      streams_(plan.streams, driver.per_thread_stream),
      wrong_(sizeof(std::uint64_t)),
      pool_(make_pool(driver)) {
  void* memory = nullptr;
  check(cuMemHostAlloc(&memory, kWindow, 0), "cuMemHostAlloc");
  pinned_ = static_cast<std::uint8_t*>(memory);
  check(cuMemsetD8Async(wrong_.get(), 0, sizeof(std::uint64_t), streams_[0]), "cuMemsetD8Async");
  check(cuStreamSynchronize(streams_[0]), "cuStreamSynchronize");
}

Worker::~Worker() {
  graph_.reset();
  if (pool_ != nullptr) driver_.cuMemPoolDestroy(pool_);
  cuMemFreeHost(pinned_);
}

Tally Worker::run(const std::atomic<bool>& stop) {
  while (!stop && (plan_.steps == 0 || tally_.steps < plan_.steps)) {
    step();
    ++tally_.steps;
    if (tally_.steps == plan_.break_at) change_a_byte();
    if (tally_.steps % kCollectEvery == 0) collect();
    if (plan_.print_every != 0 && tally_.steps % plan_.print_every == 0) {
      std::printf("step %llu errors %llu\n", static_cast<unsigned long long>(tally_.steps),
                  static_cast<unsigned long long>(tally_.all_errors()));
      std::fflush(stdout);
    }
  }
  for (const Buffer& buffer : buffers_) check_by_kernel(buffer);
  if (graph_) graph_->verify(verify_, streams_[0]);
  collect();
  while (!buffers_.empty()) release_one();
  graph_.reset();
  streams_.synchronize();
  return tally_;
}

void Worker::step() {
  if (buffers_.empty()) return allocate();
  switch (random_.below(16)) {
    case 0:
    case 1:
    case 2:
      return allocate();
    case 3:
      return allocate_small();
    case 4:
      return release_one();
    case 5:
    case 6: {
      Buffer& buffer = any();
      ++buffer.version;
      return fill(buffer);
    }
    case 7:
      return copy();
    case 8:
    case 9:
      return check_by_kernel(any());
    case 10:
      return check_by_copy(any());
    case 11:
    case 12:
      return driver_.callbacks ? check_by_callback(any()) : check_by_copy(any());
    case 13:
      return use_module();
    case 14:
      return driver_.graphs ? use_graph() : check_by_kernel(any());
    default:
      return check_codes();
  }
}

// Waits for all work in flight, and counts the errors that the work found.
void Worker::collect() {
  streams_.synchronize();
  std::uint64_t wrong = 0;
  download(&wrong, wrong_.get(), sizeof wrong);
  tally_.count(Finder::kKernel, wrong);
  if (wrong != 0) {
    check(cuMemsetD8Async(wrong_.get(), 0, sizeof wrong, streams_[0]), "cuMemsetD8Async");
    check(cuStreamSynchronize(streams_[0]), "cuStreamSynchronize");
  }
  for (const auto& callback : callbacks_) {
    tally_.callbacks += callback->called ? 1 : 0;
    tally_.count(Finder::kCallback, callback->called && callback->equal ? 0 : 1);
  }
  callbacks_.clear();
}

Buffer& Worker::any() {
  return buffers_[random_.below(buffers_.size())];
}

// Returns a random size. Its limit is a random power of two, so that small sizes are as frequent as large
// sizes.
std::uint64_t Worker::any_size() {
  const auto powers = static_cast<std::uint64_t>(std::bit_width(plan_.max_bytes));
  const std::uint64_t limit = std::min(std::uint64_t{1} << random_.below(powers), plan_.max_bytes);
  return 1 + random_.below(limit);
}

Origin Worker::any_origin() {
  const std::uint64_t choice = random_.below(8);
  if (choice < 2 && driver_.pools) return choice == 0 ? Origin::kAsync : Origin::kPool;
  if (choice == 2) return Origin::kPitch;
  return choice == 3 ? Origin::kVirtual : Origin::kPlain;
}

void Worker::allocate() {
  const std::uint64_t bytes = any_size();
  const Origin origin = any_origin();
  Buffer buffer = make(bytes, origin);
  if (bytes <= kWindow && random_.below(4) == 0) {
    fill_from_host(buffer);
  } else {
    fill(buffer);
  }
  buffers_.push_back(buffer);
}

// Allocates neighboring buffers in one page of memory, and frees some of them at once.
void Worker::allocate_small() {
  for (int i = 0; i < 12; ++i) {
    Buffer buffer = make(1 + random_.below(512), Origin::kPlain);
    fill(buffer);
    buffers_.push_back(buffer);
    if (i % 3 == 2) release_one();
  }
}

Buffer Worker::make(std::uint64_t bytes, Origin origin) {
  while (!buffers_.empty() && used_ + bytes > plan_.memory_bytes) release_one();
  Buffer buffer;
  buffer.bytes = bytes;
  buffer.seed = random_.next();
  buffer.stream = random_.below(streams_.size());
  buffer.origin = origin;
  CUstream stream = streams_[buffer.stream];
  switch (origin) {
    case Origin::kPlain:
      check(cuMemAlloc(&buffer.pointer, bytes), "cuMemAlloc");
      break;
    case Origin::kPitch: {
      const std::uint64_t height = 1 + random_.below(std::min<std::uint64_t>(bytes, 8));
      const std::uint64_t width = (bytes + height - 1) / height;
      std::size_t pitch = 0;
      check(cuMemAllocPitch(&buffer.pointer, &pitch, width, height, 4), "cuMemAllocPitch");
      tally_.count(Finder::kAnswer, pitch < width ? 1 : 0);
      break;
    }
    case Origin::kAsync:
      check(driver_.cuMemAllocAsync(&buffer.pointer, bytes, stream), "cuMemAllocAsync");
      break;
    case Origin::kPool:
      check(driver_.cuMemAllocFromPoolAsync(&buffer.pointer, bytes, pool_, stream),
            "cuMemAllocFromPoolAsync");
      break;
    case Origin::kVirtual:
      map_virtual(buffer);
      break;
  }
  used_ += bytes;
  ++tally_.allocations;
  return buffer;
}

void Worker::map_virtual(Buffer& buffer) {
  CUmemAllocationProp properties{};
  CUdevice device = 0;
  check(cuCtxGetDevice(&device), "cuCtxGetDevice");
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
  buffer.reserved = (buffer.bytes + kPage - 1) / kPage * kPage;
  check(cuMemAddressReserve(&buffer.pointer, buffer.reserved, 0, 0, 0), "cuMemAddressReserve");
  check(cuMemCreate(&buffer.handle, buffer.reserved, &properties, 0), "cuMemCreate");
  check(cuMemMap(buffer.pointer, buffer.reserved, 0, buffer.handle, 0), "cuMemMap");
  CUmemAccessDesc access{};
  access.location = properties.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  check(cuMemSetAccess(buffer.pointer, buffer.reserved, &access, 1), "cuMemSetAccess");
}

void Worker::destroy(const Buffer& buffer) {
  CUstream stream = streams_[buffer.stream];
  if (buffer.origin == Origin::kAsync || buffer.origin == Origin::kPool) {
    // Frees in the order of another stream, while the buffer's own work is still in flight.
    CUstream other = streams_[random_.below(streams_.size())];
    if (other != stream) Streams::order(stream, other);
    check(driver_.cuMemFreeAsync(buffer.pointer, other), "cuMemFreeAsync");
    return;
  }
  check(cuStreamSynchronize(stream), "cuStreamSynchronize");
  if (buffer.origin != Origin::kVirtual) return check(cuMemFree(buffer.pointer), "cuMemFree");
  check(cuMemUnmap(buffer.pointer, buffer.reserved), "cuMemUnmap");
  check(cuMemRelease(buffer.handle), "cuMemRelease");
  check(cuMemAddressFree(buffer.pointer, buffer.reserved), "cuMemAddressFree");
}

void Worker::release_one() {
  Buffer& chosen = any();
  const Buffer buffer = chosen;
  chosen = buffers_.back();
  buffers_.pop_back();
  check_by_kernel(buffer);
  destroy(buffer);
  used_ -= buffer.bytes;
}

}  // namespace ckpt::examples
