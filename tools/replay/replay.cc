// SPDX-License-Identifier: Apache-2.0
#include "tools/replay/replay.h"

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "tools/replay/calls.h"
#include "tools/replay/lanes.h"

namespace ckpt::replay {
namespace {

constexpr std::size_t kMaxThreads = 1024;
constexpr std::chrono::seconds kLimit{60};

// The thread that is in the call cannot be ended without the process.
[[noreturn]] void end_at(const TracedCall& call) {
  std::fprintf(
      stderr,
      "gpumigrate-replay: %s of line %zu has not returned after %lld s; in the trace it took %lld us\n",
      call.name.c_str(), call.line, static_cast<long long>(kLimit.count()),
      static_cast<long long>(call.took_us));
  std::_Exit(kHangs);
}

// Whether work has ended is a question of time.
bool may_differ(const TracedCall& call, int answered) {
  const auto depends_on_time = [](int result) {
    return result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY;
  };
  const std::string_view name = call.name;
  const bool asks = name.starts_with("cuEventQuery") || name.starts_with("cuStreamQuery") ||
                    name.starts_with("cuEventElapsedTime");
  return asks && depends_on_time(call.result) && depends_on_time(answered);
}

void note(Replayed& replayed, const TracedCall& call, const Outcome& outcome) {
  if (!outcome.is_made) {
    replayed.left_out[{call.name, outcome.why}]++;
    return;
  }
  replayed.calls++;
  replayed.by_function[call.name]++;
  if (outcome.result == call.result || may_differ(call, outcome.result)) return;
  std::vector<Difference>& known = replayed.differences[call.name];
  auto same = std::find_if(known.begin(), known.end(), [&](const Difference& difference) {
    return difference.traced == call.result && difference.answered == outcome.result;
  });
  if (same == known.end()) {
    Difference first;
    first.line = call.line;
    first.traced = call.result;
    first.answered = outcome.result;
    same = known.insert(known.end(), first);
  }
  same->count++;
}

// Notes as missing each handle and address that a left-out call had written.
void miss_outputs(Objects& objects, const TracedCall& call) {
  for (const TracedValue& value : call.values) {
    const bool is_word =
        value.data.size() == sizeof(std::uint64_t) && value.before.size() == value.data.size();
    if (is_word && value.data != value.before && word_of(value.data) != 0) objects.miss(word_of(value.data));
  }
  if (call.name == "cuMemMap" && !call.values.empty()) objects.miss(call.values[0].value);
}

Outcome make(Surroundings& surroundings, const TracedCall& call) {
  bool found = false;
  Outcome outcome = call_by_name(surroundings, call, &found);
  if (!found) outcome = call_by_types(surroundings, call, manner_of(call));
  if (call.result != CUDA_SUCCESS) return outcome;
  if (!outcome.is_made) miss_outputs(surroundings.objects, call);
  if (frees(call) && !call.values.empty()) surroundings.objects.forget_range(call.values[0].value);
  return outcome;
}

}  // namespace

Result<Replayed> replay(const Trace& trace, const std::string& kernels) {
  void* driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr)
    return Error(ErrorCode::kNotSupported, "There is no driver (libcuda.so.1) to replay on");
  Surroundings surroundings(driver, kernels);
  Lanes lanes;
  Replayed replayed;
  for (const TracedCall& call : trace.calls) {
    Outcome outcome = left_out("it is of one thread too many");
    if (lanes.count() < kMaxThreads && !lanes.run(
                                           call.thread, [&] { outcome = make(surroundings, call); }, kLimit))
      end_at(call);
    note(replayed, call, outcome);
  }
  return replayed;
}

}  // namespace ckpt::replay
