// SPDX-License-Identifier: Apache-2.0
// Pinned memory through which operations pass: a few words that a stream writes and waits for, and then data.
// All communicators of a context reuse the blocks. NCCL also retains such memory while it is in use.
//
// Threads: any. Ownership: a block belongs to its acquirer until the pointer is destroyed. The block is
// reused only once the stream has passed it. Errors: ncclUnhandledCudaError.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "tests/simulators/ncclsim/base/result.h"

namespace ncclsim {

// Progress words of a block. Each use of a block has a number; a word with this number means that the use has
// reached the word's stage.
struct StagingWords {
  std::atomic<std::uint64_t> ready;     // written by the stream: the input has been copied in
  std::atomic<std::uint64_t> finished;  // written by the proxy: the output is complete
  std::atomic<std::uint64_t> copied;    // written by the stream: the output has been copied out
};

struct Block {
  unsigned char* host = nullptr;  // host address of the words
  CUdeviceptr device = 0;
  std::size_t bytes = 0;   // size of the data
  std::uint64_t use = 0;   // number of the block's current use
  bool in_stream = false;  // this use was given to a stream, which will pass the block
  [[nodiscard]] StagingWords& words() const { return *reinterpret_cast<StagingWords*>(host); }
  [[nodiscard]] unsigned char* data() const;
};

constexpr std::size_t kWordReady = 0;
constexpr std::size_t kWordFinished = 8;
constexpr std::size_t kWordCopied = 16;

// Acquires a block. The context must be current.
ncclResult_t acquire_block(CUcontext context, std::size_t bytes, std::shared_ptr<Block>* out);
// Counts a communicator of a context. leave_staging() ends this; the last communicator to leave frees the
// idle blocks.
void use_staging(CUcontext context);
void leave_staging(CUcontext context);

}  // namespace ncclsim
