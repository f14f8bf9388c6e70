// SPDX-License-Identifier: Apache-2.0
#include "tests/programs/runtime/model.h"

#include <cooperative_groups.h>

#include <algorithm>
#include <vector>

#include "tests/programs/runtime/check.h"

namespace ckpt::examples {
namespace {

constexpr std::size_t kWord = sizeof(std::uint64_t);
constexpr std::uint64_t kWords = std::uint64_t{1} << 21;  // words of the weights: 16 MiB
constexpr std::uint64_t kBatchWords = std::uint64_t{1} << 12;
constexpr std::uint64_t kFieldWords = std::uint64_t{1} << 16;
constexpr unsigned kFieldRounds = 4;
constexpr unsigned kConstants = 16;
constexpr std::size_t kRowWords = 1001;  // leaves padding between a row's end and the pitch
constexpr std::size_t kRowCount = 64;
constexpr unsigned kThreads = 256;
constexpr unsigned kBlocks = 64;
constexpr std::size_t kSharedBytes = std::size_t{64} << 10;  // more shared memory than a kernel has by
                                                             // default

__constant__ std::uint64_t constants[kConstants];
__device__ std::uint64_t forward_runs;

__device__ std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

__device__ std::uint64_t first_index() {
  return std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
}

__device__ std::uint64_t stride() {
  return std::uint64_t{gridDim.x} * blockDim.x;
}

__global__ void forward(const std::uint64_t* weights, const std::uint64_t* batch, std::uint64_t* out) {
  for (std::uint64_t i = first_index(); i < kWords; i += stride())
    out[i] = mixed(weights[i] + batch[i % kBatchWords] + constants[i % kConstants]);
}

__global__ void count_forward() {
  ++forward_runs;
}

__global__ void update(std::uint64_t* weights, const std::uint64_t* activation) {
  for (std::uint64_t i = first_index(); i < kWords; i += stride())
    weights[i] = weights[i] * 3 + activation[i];
}

// Computes the sum of each block's share, with one word of shared memory for each thread and round.
__global__ void sum_blocks(const std::uint64_t* in, std::uint64_t* sums) {
  extern __shared__ std::uint64_t part[];
  const unsigned words = kSharedBytes / kWord;
  for (unsigned i = threadIdx.x; i < words; i += blockDim.x) part[i] = 0;
  for (std::uint64_t i = first_index(), k = threadIdx.x; i < kWords;
       i += stride(), k = (k + blockDim.x) % words)
    part[k] += in[i];
  __syncthreads();
  for (unsigned half = words / 2; half > 0; half /= 2) {
    for (unsigned i = threadIdx.x; i < half; i += blockDim.x) part[i] += part[i + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) sums[blockIdx.x] = part[0];
}

__global__ void write_result(const std::uint64_t* sums, std::uint64_t* result) {
  std::uint64_t sum = 0;
  for (unsigned i = 0; i < kBlocks; ++i) sum += sums[i];
  result[0] = sum;
  result[1] = forward_runs;
}

__global__ void add_rows(std::uint64_t* rows, std::size_t pitch, const std::uint64_t* sums) {
  for (std::size_t y = blockIdx.x; y < kRowCount; y += gridDim.x) {
    auto* row = reinterpret_cast<std::uint64_t*>(reinterpret_cast<char*>(rows) + y * pitch);
    for (std::size_t x = threadIdx.x; x < kRowWords; x += blockDim.x)
      row[x] = mixed(row[x] + sums[y % kBlocks] + x);
  }
}

// Reads in each round the values that other blocks wrote in the previous round.
__global__ void spread(std::uint64_t* field, std::uint64_t* next) {
  const cooperative_groups::grid_group grid = cooperative_groups::this_grid();
  for (unsigned round = 0; round < kFieldRounds; ++round) {
    for (std::uint64_t i = first_index(); i < kFieldWords; i += stride())
      next[i] = mixed(field[i] + 5 * field[(i + kFieldWords / 3) % kFieldWords]);
    grid.sync();
    for (std::uint64_t i = first_index(); i < kFieldWords; i += stride()) field[i] = next[i];
    grid.sync();
  }
}

void CUDART_CB count_call(void* calls) {
  ++*static_cast<std::atomic<std::uint64_t>*>(calls);
}

std::uint64_t* device_words(std::uint64_t words) {
  void* at = nullptr;
  check(cudaMalloc(&at, words * kWord), "cudaMalloc");
  check(cudaMemset(at, 0, words * kWord), "cudaMemset");
  return static_cast<std::uint64_t*>(at);
}

cudaEvent_t new_event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  return event;
}

cudaMemPool_t new_pool(int device) {
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = device;
  cudaMemPool_t pool = nullptr;
  check(cudaMemPoolCreate(&pool, &properties), "cudaMemPoolCreate");
  std::uint64_t keep = UINT64_MAX;
  check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep), "cudaMemPoolSetAttribute");
  return pool;
}

}  // namespace

Model::Model(std::uint64_t seed) : random_(seed), library_("runtime_kernels") {
  int device = 0;
  int lowest = 0;
  int highest = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "cudaDeviceGetStreamPriorityRange");
  check(cudaStreamCreateWithFlags(&main_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  check(cudaStreamCreateWithPriority(&side_, cudaStreamNonBlocking, highest), "cudaStreamCreateWithPriority");
  forward_done_ = new_event();
  library_done_ = new_event();
  pool_ = new_pool(device);
  weights_ = device_words(kWords);
  activation_ = device_words(kWords);
  sums_ = device_words(kBlocks);
  field_ = device_words(kFieldWords);
  next_field_ = device_words(kFieldWords);
  check(cudaMallocPitch(reinterpret_cast<void**>(&rows_), &pitch_, kRowWords * kWord, kRowCount),
        "cudaMallocPitch");
  check(cudaMemset2D(rows_, pitch_, 0, kRowWords * kWord, kRowCount), "cudaMemset2D");
  check(cudaMallocHost(reinterpret_cast<void**>(&batch_), kBatchWords * kWord), "cudaMallocHost");
  check(cudaHostAlloc(reinterpret_cast<void**>(&result_), 2 * kWord, cudaHostAllocMapped), "cudaHostAlloc");
  check(cudaHostGetDevicePointer(reinterpret_cast<void**>(&result_at_), result_, 0),
        "cudaHostGetDevicePointer");
  result_[0] = seed;
  result_[1] = 0;
  check(cudaFuncSetAttribute(sum_blocks, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes),
        "cudaFuncSetAttribute");
  // The memory was set on the default stream, and the other streams do not wait for this stream.
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  capture();
}

Model::~Model() {
  cudaDeviceSynchronize();
  cudaGraphExecDestroy(graph_);
  cudaFreeHost(result_);
  cudaFreeHost(batch_);
  for (std::uint64_t* memory : {rows_, next_field_, field_, sums_, activation_, weights_}) cudaFree(memory);
  cudaMemPoolDestroy(pool_);
  cudaEventDestroy(library_done_);
  cudaEventDestroy(forward_done_);
  cudaStreamDestroy(side_);
  cudaStreamDestroy(main_);
}

// Captures the update, the sums and a host function as one graph.
void Model::capture() {
  check(cudaStreamBeginCapture(main_, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
  update<<<kBlocks, kThreads, 0, main_>>>(weights_, activation_);
  check(cudaMemsetAsync(sums_, 0, kBlocks * kWord, main_), "cudaMemsetAsync");
  sum_blocks<<<kBlocks, kThreads, kSharedBytes, main_>>>(weights_, sums_);
  check(cudaLaunchHostFunc(main_, count_call, &host_calls_), "cudaLaunchHostFunc");
  cudaGraph_t graph = nullptr;
  check(cudaStreamEndCapture(main_, &graph), "cudaStreamEndCapture");
  check(cudaGraphInstantiate(&graph_, graph, 0), "cudaGraphInstantiate");
  check(cudaGraphDestroy(graph), "cudaGraphDestroy");
}

void Model::load_batch() {
  for (std::uint64_t i = 0; i < kBatchWords; ++i) batch_[i] = random_.next() + result_[0];
  check(cudaMemcpyToSymbolAsync(constants, batch_, sizeof constants, 0, cudaMemcpyHostToDevice, main_),
        "cudaMemcpyToSymbolAsync");
}

void Model::run_forward() {
  void* batch = nullptr;
  check(cudaMallocAsync(&batch, kBatchWords * kWord, main_), "cudaMallocAsync");
  check(cudaMemcpyAsync(batch, batch_, kBatchWords * kWord, cudaMemcpyHostToDevice, main_),
        "cudaMemcpyAsync");
  forward<<<kBlocks, kThreads, 0, main_>>>(weights_, static_cast<std::uint64_t*>(batch), activation_);
  count_forward<<<1, 1, 0, main_>>>();
  check(cudaGetLastError(), "forward");
  check(cudaFreeAsync(batch, main_), "cudaFreeAsync");
  check(cudaEventRecord(forward_done_, main_), "cudaEventRecord");
}

// Runs the library's kernels on the side stream, while the main stream continues with work that does not use
// the activation.
void Model::run_library() {
  std::uint64_t words = kWords;
  std::uint64_t by = 1;
  void* turn[] = {&activation_, &words};
  void* end_turn[] = {&by};
  check(cudaStreamWaitEvent(side_, forward_done_, 0), "cudaStreamWaitEvent");
  check(cudaLaunchKernel(library_.kernel("turn"), dim3(kBlocks), dim3(kThreads), turn, 0, side_),
        "cudaLaunchKernel");
  check(cudaLaunchKernel(library_.kernel("end_turn"), dim3(1), dim3(1), end_turn, 0, side_),
        "cudaLaunchKernel");
  check(cudaEventRecord(library_done_, side_), "cudaEventRecord");
}

// Copies through a second pitched block and back: 2D copies of rows with two pitches.
void Model::run_rows() {
  void* other = nullptr;
  add_rows<<<kBlocks, kThreads, 0, main_>>>(rows_, pitch_, sums_);
  check(cudaGetLastError(), "add_rows");
  constexpr std::size_t kWidth = kRowWords * kWord;
  check(cudaMallocFromPoolAsync(&other, kWidth * kRowCount, pool_, main_), "cudaMallocFromPoolAsync");
  check(cudaMemcpy2DAsync(other, kWidth, rows_, pitch_, kWidth, kRowCount, cudaMemcpyDeviceToDevice, main_),
        "cudaMemcpy2DAsync");
  check(cudaMemset2DAsync(rows_, pitch_, 0x5A, kWidth, kRowCount, main_), "cudaMemset2DAsync");
  check(cudaMemcpy2DAsync(rows_, pitch_, other, kWidth, kWidth, kRowCount, cudaMemcpyDeviceToDevice, main_),
        "cudaMemcpy2DAsync");
  check(cudaFreeAsync(other, main_), "cudaFreeAsync");
}

// Fills temporaries of many sizes: a block that was allocated twice would change the result of a step.
void Model::run_temporaries() {
  constexpr int kTemporaries = 8;
  std::vector<void*> held(kTemporaries);
  for (int i = 0; i < kTemporaries; ++i) {
    const std::size_t bytes = 1 + random_.below(std::uint64_t{3} << 20);
    check(i % 2 == 0 ? cudaMallocAsync(&held[i], bytes, main_)
                     : cudaMallocFromPoolAsync(&held[i], bytes, pool_, main_),
          "cudaMallocAsync");
    check(cudaMemsetAsync(held[i], 0xA5, bytes, main_), "cudaMemsetAsync");
  }
  for (void* memory : held) check(cudaFreeAsync(memory, main_), "cudaFreeAsync");
}

unsigned Model::blocks_at_once() const {
  int device = 0;
  int processors = 0;
  int of_each = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device),
        "cudaDeviceGetAttribute");
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&of_each, spread, kThreads, 0),
        "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  return std::min(kBlocks, static_cast<unsigned>(processors * of_each));
}

void Model::run_together() {
  void* arguments[] = {&field_, &next_field_};
  check(cudaMemcpyAsync(field_, sums_, kBlocks * kWord, cudaMemcpyDeviceToDevice, main_), "cudaMemcpyAsync");
  check(cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(spread), dim3(blocks_at_once()),
                                    dim3(kThreads), arguments, 0, main_),
        "cudaLaunchCooperativeKernel");
  check(cudaLaunchHostFunc(main_, count_call, &host_calls_), "cudaLaunchHostFunc");
}

void Model::read_result() {
  write_result<<<1, 1, 0, main_>>>(sums_, result_at_);
  check(cudaGetLastError(), "write_result");
  check(cudaStreamSynchronize(main_), "cudaStreamSynchronize");
}

void Model::step() {
  load_batch();
  run_forward();
  run_library();
  run_rows();
  run_temporaries();
  run_together();
  check(cudaStreamWaitEvent(main_, library_done_, 0), "cudaStreamWaitEvent");
  check(cudaGraphLaunch(graph_, main_), "cudaGraphLaunch");
  read_result();
}

void Model::add_to(Digest& digest) {
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  const auto add = [&](const std::uint64_t* from, std::uint64_t words) {
    std::vector<std::uint64_t> copy(words);
    check(cudaMemcpy(copy.data(), from, words * kWord, cudaMemcpyDeviceToHost), "cudaMemcpy");
    digest.add(copy.data(), words * kWord);
  };
  add(weights_, kWords);
  add(activation_, kWords);
  add(field_, kFieldWords);
  for (std::size_t y = 0; y < kRowCount; ++y) add(rows_ + y * pitch_ / kWord, kRowWords);
  add(static_cast<std::uint64_t*>(library_.variable("turns", kWord)), 1);
  digest.add(result_, 2 * kWord);
  const std::uint64_t calls = host_calls_;
  digest.add(&calls, sizeof calls);
}

}  // namespace ckpt::examples
