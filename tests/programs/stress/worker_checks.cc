// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "tests/programs/stress/content.h"
#include "tests/programs/stress/worker_detail.h"

namespace ckpt::examples {
namespace {

constexpr std::uint64_t kCallbackBytes = 512;
constexpr std::uint64_t kGraphBytes = 4096 + 5;

bool is_content(const std::uint8_t* found, std::uint64_t bytes, std::uint64_t from, std::uint64_t seed,
                std::uint32_t version) {
  for (std::uint64_t i = 0; i < bytes; ++i) {
    if (found[i] != content_byte(seed, version, from + i)) return false;
  }
  return true;
}

}  // namespace

void Worker::fill(Buffer& buffer) {
  launch_on(streams_[buffer.stream], fill_, blocks_for(buffer.bytes), kBlockThreads, buffer.pointer,
            buffer.bytes, buffer.seed, buffer.version);
}

void Worker::fill_from_host(Buffer& buffer) {
  for (std::uint64_t i = 0; i < buffer.bytes; ++i) pinned_[i] = content_byte(buffer.seed, buffer.version, i);
  CUstream stream = streams_[buffer.stream];
  check(cuMemcpyHtoDAsync(buffer.pointer, pinned_, buffer.bytes, stream), "cuMemcpyHtoDAsync");
  check(cuStreamSynchronize(stream), "cuStreamSynchronize");
}

void Worker::check_by_kernel(const Buffer& buffer) {
  launch_on(streams_[buffer.stream], verify_, blocks_for(buffer.bytes), kBlockThreads, buffer.pointer,
            buffer.bytes, buffer.seed, buffer.version, wrong_.get());
  ++tally_.checks;
}

void Worker::check_by_copy(const Buffer& buffer) {
  const std::uint64_t bytes = std::min(buffer.bytes, kWindow);
  const std::uint64_t from = random_.below(buffer.bytes - bytes + 1);
  CUstream stream = streams_[buffer.stream];
  check(cuMemcpyDtoHAsync(pinned_, buffer.pointer + from, bytes, stream), "cuMemcpyDtoHAsync");
  check(cuStreamSynchronize(stream), "cuStreamSynchronize");
  tally_.count(Finder::kCopy, is_content(pinned_, bytes, from, buffer.seed, buffer.version) ? 0 : 1);
  ++tally_.checks;
}

void Worker::check_by_callback(const Buffer& buffer) {
  auto callback = std::make_unique<Callback>();
  callback->bytes = std::min(buffer.bytes, kCallbackBytes);
  callback->from = random_.below(buffer.bytes - callback->bytes + 1);
  callback->seed = buffer.seed;
  callback->version = buffer.version;
  void* pinned = nullptr;
  check(cuMemHostAlloc(&pinned, callback->bytes, 0), "cuMemHostAlloc");
  callback->found = static_cast<std::uint8_t*>(pinned);
  CUstream stream = streams_[buffer.stream];
  check(cuMemcpyDtoHAsync(pinned, buffer.pointer + callback->from, callback->bytes, stream),
        "cuMemcpyDtoHAsync");
  const CUhostFn compare = [](void* data) {
    auto& mine = *static_cast<Callback*>(data);
    mine.equal = is_content(mine.found, mine.bytes, mine.from, mine.seed, mine.version);
    mine.called = true;
  };
  check(driver_.cuLaunchHostFunc(stream, compare, callback.get()), "cuLaunchHostFunc");
  callbacks_.push_back(std::move(callback));
  ++tally_.checks;
}

// Copies the first buffer's content to a second buffer, on another stream.
void Worker::copy() {
  const std::size_t source_index = random_.below(buffers_.size());
  if (used_ + buffers_[source_index].bytes > plan_.memory_bytes) return release_one();
  Buffer made = make(buffers_[source_index].bytes, any_origin());
  const Buffer& source = buffers_[source_index];
  made.seed = source.seed;
  made.version = source.version;
  CUstream from = streams_[source.stream];
  CUstream to = streams_[made.stream];
  Streams::order(from, to);
  check(cuMemcpyDtoDAsync(made.pointer, source.pointer, made.bytes, to), "cuMemcpyDtoDAsync");
  Streams::order(to, from);  // the source may be written or freed only after the copy
  buffers_.push_back(made);
}

// Uses the variable of the module that the thread loaded at its start, and checks the sum of all additions.
void Worker::use_variable() {
  CUstream stream = streams_[0];
  const LocalMemory count(sizeof(std::uint64_t));
  variable_ += tally_.steps;
  launch_on(stream, kernels_["count_launch"], 1, 1, tally_.steps);
  launch_on(stream, kernels_["read_launches"], 1, 1, count.get());
  check(cuStreamSynchronize(stream), "cuStreamSynchronize");
  std::uint64_t found = 0;
  download(&found, count.get(), sizeof found);
  tally_.count(Finder::kModule, found == variable_ ? 0 : 1);
  ++tally_.checks;
}

// Loads the device code again, uses its own variable and a buffer, and unloads it.
void Worker::use_module() {
  use_variable();
  const Kernels module(kModule);
  Buffer& buffer = any();
  CUstream stream = streams_[buffer.stream];
  const LocalMemory count(sizeof(std::uint64_t));
  std::uint64_t expected = 0;
  for (int i = 0; i < 3; ++i) {
    const std::uint64_t by = random_.below(1000);
    expected += by;
    launch_on(stream, module["count_launch"], 1, 1, by);
  }
  launch_on(stream, module["read_launches"], 1, 1, count.get());
  ++buffer.version;
  launch_on(stream, module["fill"], blocks_for(buffer.bytes), kBlockThreads, buffer.pointer, buffer.bytes,
            buffer.seed, buffer.version);
  check(cuStreamSynchronize(stream), "cuStreamSynchronize");
  std::uint64_t found = 0;
  download(&found, count.get(), sizeof found);
  tally_.count(Finder::kModule, found == expected ? 0 : 1);
  ++tally_.checks;
  ++tally_.modules;
}

// Launches the long-lived graph several more times. From time to time the graph is rebuilt in the other way.
void Worker::use_graph() {
  CUstream stream = streams_[0];
  if (!graph_ || random_.below(16) == 0) {
    check(cuStreamSynchronize(stream), "cuStreamSynchronize");
    const bool captured = driver_.capture && random_.below(2) == 0;
    graph_.reset();
    graph_ = std::make_unique<RepeatedGraph>(driver_, kernels_, captured, streams_.for_capture(), kGraphBytes,
                                             random_.next(), wrong_.get());
  }
  const std::uint64_t times = 1 + random_.below(3);
  for (std::uint64_t i = 0; i < times; ++i) graph_->launch(stream);
  tally_.graph_launches += times;
  graph_->verify(verify_, stream);
  ++tally_.checks;
}

void Worker::change_a_byte() {
  if (buffers_.empty()) return;
  const Buffer& buffer = any();
  const std::uint64_t at = random_.below(buffer.bytes);
  const auto other = static_cast<unsigned char>(content_byte(buffer.seed, buffer.version, at) ^ 1);
  check(cuMemsetD8Async(buffer.pointer + at, other, 1, streams_[buffer.stream]), "cuMemsetD8Async");
  check_by_kernel(buffer);
}

void Worker::note_code(CUresult result) {
  tally_.codes = content_word(tally_.codes, static_cast<std::uint32_t>(result), 1);
}

// Makes calls that must fail, and queries. Their results must not depend on a shim in front of the driver.
void Worker::check_codes() {
  const Buffer& buffer = any();
  CUdeviceptr pointer = 0;
  note_code(cuMemAlloc(&pointer, 0));
  note_code(cuMemAlloc(&pointer, std::size_t{1} << 50));
  note_code(cuMemFree(0x1000));
  note_code(cuMemFree(buffer.pointer + 1));
  note_code(cuMemcpyDtoH(pinned_, 0x1000, 1));
  CUdeviceptr base = 0;
  const CUresult ranged = cuMemGetAddressRange(&base, nullptr, buffer.pointer + buffer.bytes / 2);
  note_code(ranged);
  unsigned kind = 0;
  const CUresult asked = cuPointerGetAttribute(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, buffer.pointer);
  note_code(asked);
  const bool right = ranged == CUDA_SUCCESS && base == buffer.pointer && asked == CUDA_SUCCESS &&
                     kind == CU_MEMORYTYPE_DEVICE;
  tally_.count(Finder::kAnswer, right ? 0 : 1);
  ++tally_.checks;
}

}  // namespace ckpt::examples
