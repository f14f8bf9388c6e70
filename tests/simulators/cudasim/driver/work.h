// SPDX-License-Identifier: Apache-2.0
// The kinds of work that can be queued on a stream, such as copies, memory sets, launches and host functions.
// A graph's nodes hold the same kinds, and queue their work at each launch. Errors: CUresult.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <variant>
#include <vector>

#include "tests/simulators/cudasim/driver/context.h"

namespace cudasim {

struct GraphBody;

struct CopyWork {
  std::uint64_t to = 0;
  std::uint64_t from = 0;
  std::uint64_t bytes = 0;
  std::uint32_t rows = 1;
  std::uint32_t slices = 1;
  std::uint64_t to_row = 0;
  std::uint64_t from_row = 0;
  std::uint64_t to_slice = 0;
  std::uint64_t from_slice = 0;
};

struct SetWork {
  std::uint64_t to = 0;
  std::uint32_t value = 0;
  std::uint32_t width = 1;
  std::uint64_t count = 0;
  std::uint64_t rows = 1;
  std::uint64_t row_step = 0;
};

struct LaunchWork {
  Function* function = nullptr;
  LaunchCommand command{};
  std::vector<unsigned char> arguments;
};

struct HostWork {
  CUhostFn function = nullptr;
  void* data = nullptr;
};

struct RecordWork {
  Event* event = nullptr;
};

struct WaitWork {
  Event* event = nullptr;
};

struct AllocateWork {  // memory that a graph owns
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
};

struct FreeWork {
  std::uint64_t address = 0;
};

struct EmptyWork {};

using Work = std::variant<EmptyWork, CopyWork, SetWork, LaunchWork, HostWork, RecordWork, WaitWork,
                          AllocateWork, FreeWork>;

enum class Waits { kYes, kNo };

// Queues work at once. A copy from or to pageable memory always waits for its end.
CUresult queue_copy(Context* context, Stream* stream, const CopyWork& work, Waits waits);
CUresult queue_set(Context* context, Stream* stream, const SetWork& work, Waits waits);
CUresult queue_record(Context* context, Stream* stream, Event* event);
CUresult queue_wait(Context* context, Stream* stream, Event* event);
CUresult queue_work(Context* context, Stream* stream, const Work& work);

// Checks whether the bytes can be copied or set. A graph calls this when a node is created.
CUresult check_copy(Context* context, const CopyWork& work);
CUresult check_set(Context* context, const SetWork& work);

// Performs a call on a stream: the work is captured if the stream is capturing, and queued otherwise.
CUresult submit_copy(CUstream stream, const CopyWork& work, Waits waits);
CUresult submit_set(CUstream stream, const SetWork& work, Waits waits);

CUresult make_copy(const CUDA_MEMCPY3D& given, CopyWork* out);

// Creates the work of a launch from the driver's arguments.
CUresult make_launch(Function* function, const CUlaunchConfig& config, void** parameters, void** extra,
                     LaunchWork* out);

}  // namespace cudasim
