// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <unordered_map>

#include "tools/replay/calls.h"

namespace ckpt::replay {
namespace {

constexpr const char* kKernel = "replayed_kernel";
constexpr std::uint64_t kSmall = 4096;  // more than any attribute takes

// The name without its version and kind of stream.
std::string_view plain_name(std::string_view name) {
  for (const std::string_view end : {"_ptsz", "_ptds"}) {
    if (name.ends_with(end)) name.remove_suffix(end.size());
  }
  if (name.size() > 3 && name.substr(name.size() - 3, 2) == "_v") name.remove_suffix(3);
  return name;
}

template <class Function>
Function* find(const Surroundings& surroundings, const char* name) {
  return reinterpret_cast<Function*>(::dlsym(surroundings.driver, name));
}

// The traced program's output, which is a handle.
void learn_output(Objects& objects, const TracedValue& traced, std::uint64_t own) {
  if (traced.data.size() == sizeof(std::uint64_t)) objects.learn_handle(word_of(traced.data), own);
}

constexpr const char* kNoCode = "the trace does not have the program's code";

Outcome load_module(Surroundings& surroundings, const TracedCall& call) {
  if (call.result != CUDA_SUCCESS) return left_out(kNoCode);
  auto* load = find<decltype(cuModuleLoad)>(surroundings, "cuModuleLoad");
  if (load == nullptr || call.values.empty()) return left_out("this driver does not have it");
  CUmodule module = nullptr;
  const CUresult result = load(&module, surroundings.kernels.c_str());
  if (result == CUDA_SUCCESS && call.result == CUDA_SUCCESS)
    learn_output(surroundings.objects, call.values[0], reinterpret_cast<std::uint64_t>(module));
  return made(result);
}

Outcome load_library(Surroundings& surroundings, const TracedCall& call) {
  if (call.result != CUDA_SUCCESS) return left_out(kNoCode);
  auto* load = find<decltype(cuLibraryLoadFromFile)>(surroundings, "cuLibraryLoadFromFile");
  if (load == nullptr || call.values.empty()) return left_out("this driver does not have it");
  CUlibrary library = nullptr;
  const CUresult result =
      load(&library, surroundings.kernels.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0);
  if (result == CUDA_SUCCESS && call.result == CUDA_SUCCESS)
    learn_output(surroundings.objects, call.values[0], reinterpret_cast<std::uint64_t>(library));
  return made(result);
}

Outcome launch(Surroundings& surroundings, std::uint64_t function, std::uint64_t stream, bool per_thread) {
  auto* start =
      find<decltype(cuLaunchKernel)>(surroundings, per_thread ? "cuLaunchKernel_ptsz" : "cuLaunchKernel");
  if (start == nullptr) return left_out("this driver does not have it");
  const Objects& objects = surroundings.objects;
  if (objects.is_missing(function) || objects.is_missing(stream)) return left_out(kMissing);
  return made(start(reinterpret_cast<CUfunction>(objects.handle(function)), 1, 1, 1, 1, 1, 1, 0,
                    reinterpret_cast<CUstream>(objects.handle(stream)), nullptr, nullptr));
}

// (function, grid x, y, z, block x, y, z, shared bytes, stream, ...)
Outcome launch_kernel(Surroundings& surroundings, const TracedCall& call) {
  if (call.result != CUDA_SUCCESS) return left_out(kNoCode);
  constexpr std::size_t kStream = 8;
  if (call.values.size() <= kStream) return left_out(kUnread);
  return launch(surroundings, call.values[0].value, call.values[kStream].value, call.name.ends_with("_ptsz"));
}

// (configuration, function, ...)
Outcome launch_kernel_ex(Surroundings& surroundings, const TracedCall& call) {
  if (call.result != CUDA_SUCCESS) return left_out(kNoCode);
  if (call.values.size() < 2 || call.values[0].data.size() != sizeof(CUlaunchConfig))
    return left_out(kUnread);
  CUlaunchConfig config;
  std::memcpy(&config, call.values[0].data.data(), sizeof config);
  return launch(surroundings, call.values[1].value, reinterpret_cast<std::uint64_t>(config.hStream),
                call.name.ends_with("_ptsz"));
}

// Any kernel of ours is the one that was asked for.
Outcome get_kernel(Surroundings& surroundings, const TracedCall& call) {
  if (call.result != CUDA_SUCCESS) return left_out(kNoCode);
  Manner manner;
  manner.text = kKernel;
  return call_by_types(surroundings, call, manner);
}

// (memory, bytes, flags): memory of our own is registered in place of the program's.
Outcome register_memory(Surroundings& surroundings, const TracedCall& call) {
  if (call.values.size() != 3) return left_out(kUnread);
  Objects& objects = surroundings.objects;
  const std::uint64_t place = call.values[0].value;
  if (!objects.address(place) && objects.make_host_range(place, call.values[1].value) == nullptr)
    return left_out("this machine has too little memory");
  return call_by_types(surroundings, call, Manner());
}

Outcome of_another_process(Surroundings&, const TracedCall&) {
  return left_out("it shares something with another process");
}
Outcome of_own_code(Surroundings&, const TracedCall&) {
  return left_out(kNoCode);
}
Outcome of_a_value(Surroundings&, const TracedCall&) {
  return left_out("the device waits for what the program writes");
}
Outcome of_a_private_table(Surroundings&, const TracedCall&) {
  return left_out("the driver's private tables have no types");
}

using Special = Outcome (*)(Surroundings&, const TracedCall&);
const std::unordered_map<std::string_view, Special> kSpecial = {
    {"cuModuleLoad", load_module},
    {"cuModuleLoadData", load_module},
    {"cuModuleLoadDataEx", load_module},
    {"cuModuleLoadFatBinary", load_module},
    {"cuLibraryLoadData", load_library},
    {"cuLibraryLoadFromFile", load_library},
    {"cuModuleGetFunction", get_kernel},
    {"cuLibraryGetKernel", get_kernel},
    {"cuLaunchKernel", launch_kernel},
    {"cuLaunchCooperativeKernel", launch_kernel},
    {"cuLaunchKernelEx", launch_kernel_ex},
    {"cuMemHostRegister", register_memory},
    {"cuModuleGetGlobal", of_own_code},
    {"cuLibraryGetGlobal", of_own_code},
    {"cuLibraryGetManaged", of_own_code},
    {"cuModuleGetFunctionCount", of_own_code},
    {"cuModuleEnumerateFunctions", of_own_code},
    {"cuLibraryGetKernelCount", of_own_code},
    {"cuLibraryEnumerateKernels", of_own_code},
    {"cuFuncGetName", of_own_code},
    {"cuKernelGetName", of_own_code},
    {"cuFuncGetParamInfo", of_own_code},
    {"cuKernelGetParamInfo", of_own_code},
    {"cuStreamWaitValue32", of_a_value},
    {"cuStreamWaitValue64", of_a_value},
    {"cuStreamBatchMemOp", of_a_value},
    {"cuGetExportTable", of_a_private_table},
    {"cuIpcGetMemHandle", of_another_process},
    {"cuIpcOpenMemHandle", of_another_process},
    {"cuIpcCloseMemHandle", of_another_process},
    {"cuIpcGetEventHandle", of_another_process},
    {"cuIpcOpenEventHandle", of_another_process},
    {"cuMemExportToShareableHandle", of_another_process},
    {"cuMemImportFromShareableHandle", of_another_process},
    {"cuMemPoolExportToShareableHandle", of_another_process},
    {"cuMemPoolImportFromShareableHandle", of_another_process},
    {"cuMemPoolExportPointer", of_another_process},
    {"cuMemPoolImportPointer", of_another_process},
    {"cuMemGetHandleForAddressRange", of_another_process},
};

// Where the function has the bytes of its host memory.
const std::unordered_map<std::string_view, std::size_t> kBytesAt = {
    {"cuMemcpyHtoD", 2},      {"cuMemcpyHtoDAsync", 2}, {"cuMemcpyDtoH", 2},
    {"cuMemcpyDtoHAsync", 2}, {"cuMemcpy", 2},          {"cuMemcpyAsync", 2},
};
// Functions whose memory of unknown size is an attribute's or only handed on: it takes at most kSmall.
constexpr std::array kSmallMemory = {
    "cuPointerGetAttribute",        "cuPointerSetAttribute",  "cuMemPoolGetAttribute",
    "cuMemPoolSetAttribute",        "cuMemRangeGetAttribute", "cuDeviceGetGraphMemAttribute",
    "cuDeviceSetGraphMemAttribute", "cuLaunchHostFunc",       "cuStreamAddCallback",
    "cuUserObjectCreate",           "cuDeviceGetName",        "cuDeviceGetLuid",
    "cuDeviceGetPCIBusId",
};
const std::unordered_map<std::string_view, std::size_t> kNewMemory = {
    // where its bytes are
    {"cuMemAlloc", 1},          {"cuMemAllocManaged", 1},
    {"cuMemAllocAsync", 1},     {"cuMemAllocFromPoolAsync", 1},
    {"cuMemAddressReserve", 1}, {"cuMemAllocHost", 1},
    {"cuMemHostAlloc", 1},
};

// Their first argument is memory that is gone afterwards.
constexpr std::array kFrees = {"cuMemFree", "cuMemFreeAsync", "cuMemFreeHost", "cuMemHostUnregister",
                               "cuMemAddressFree"};

}  // namespace

bool frees(const TracedCall& call) {
  return std::find(kFrees.begin(), kFrees.end(), plain_name(call.name)) != kFrees.end();
}

Outcome call_by_name(Surroundings& surroundings, const TracedCall& call, bool* found) {
  *found = true;
  if (call.name.starts_with("cuCheckpoint")) return of_another_process(surroundings, call);
  const auto special = kSpecial.find(plain_name(call.name));
  *found = special != kSpecial.end();
  return *found ? special->second(surroundings, call) : Outcome();
}

Manner manner_of(const TracedCall& call) {
  const std::string_view name = plain_name(call.name);
  const auto number_at = [&](std::size_t at) {
    return at < call.values.size() ? call.values[at].value : std::uint64_t{0};
  };
  Manner manner;
  if (const auto at = kBytesAt.find(name); at != kBytesAt.end()) manner.scratch_bytes = number_at(at->second);
  if (std::find(kSmallMemory.begin(), kSmallMemory.end(), name) != kSmallMemory.end())
    manner.scratch_bytes = kSmall;
  manner.addresses_may_be_host = name == "cuMemcpy" || name == "cuMemcpyAsync";
  if (const auto at = kNewMemory.find(name); at != kNewMemory.end()) {
    manner.outputs_are_ranges = true;
    manner.range_bytes = number_at(at->second);
  }
  // A handle, the pitch of whose rows is an output; and one address of memory that is known otherwise.
  if (name == "cuMemCreate" || name == "cuMemHostGetDevicePointer") manner.outputs_are_ranges = true;
  if (name == "cuMemAllocPitch" && call.values.size() == 5) {
    manner.outputs_are_ranges = true;
    manner.range_bytes = word_of(call.values[1].data) * number_at(3);
  }
  return manner;
}

}  // namespace ckpt::replay
