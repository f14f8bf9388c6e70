// SPDX-License-Identifier: Apache-2.0
// Pinned memory through which operations pass: a few words that a stream writes and waits for, then data.
// Blocks are used again, by all communicators of a context. NCCL, too, keeps such memory while it is used.
//
// Threads: any. Ownership: a block belongs to who acquired it until the pointer ends. It is used again only once
// the stream has passed it. Errors: ncclUnhandledCudaError.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "tests/simulators/ncclsim/base/result.h"

namespace ncclsim {

// Each use of a block has a number; a word that holds the number means that the use has come there.
struct StagingWords {
  std::atomic<std::uint64_t> ready;     // the stream: the input has been copied in
  std::atomic<std::uint64_t> finished;  // the proxy: the output is there
  std::atomic<std::uint64_t> copied;    // the stream: the output has been copied out
};

struct Block {
  unsigned char* host = nullptr;  // the words are here
  CUdeviceptr device = 0;
  std::size_t bytes = 0;   // of data
  std::uint64_t use = 0;   // the number of its use
  bool in_stream = false;  // this use has been given to a stream, which will pass it
  [[nodiscard]] StagingWords& words() const { return *reinterpret_cast<StagingWords*>(host); }
  [[nodiscard]] unsigned char* data() const;
};

constexpr std::size_t kWordReady = 0;
constexpr std::size_t kWordFinished = 8;
constexpr std::size_t kWordCopied = 16;

// The context is current.
ncclResult_t acquire_block(CUcontext context, std::size_t bytes, std::shared_ptr<Block>* out);
// Counts the communicators of a context; with the last one its idle blocks go.
void use_staging(CUcontext context);
void leave_staging(CUcontext context);

}  // namespace ncclsim
