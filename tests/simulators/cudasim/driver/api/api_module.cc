// SPDX-License-Identifier: Apache-2.0
// Modules, functions and launches.
#include <elf.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "tests/simulators/cudasim/driver/api.h"
#include "tests/simulators/cudasim/driver/capture.h"
#include "tests/simulators/cudasim/driver/work.h"

namespace cudasim {
namespace {

constexpr int kRegisters = 32;
constexpr unsigned kMaxThreads = 1024;
constexpr int kThreadsPerMultiprocessor = 2048;
constexpr int kBlocksPerMultiprocessor = 32;
constexpr unsigned kMaxSharedBytes = 227 * 1024;
constexpr std::uint64_t kMaxImageBytes = std::uint64_t{1} << 30;

bool is_elf_object(const Elf64_Ehdr& header) {
  return std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_ident[EI_CLASS] == ELFCLASS64 &&
         header.e_type == ET_DYN && header.e_machine == EM_X86_64;
}

// Loads an image. A fat binary, PTX or a shared object without kernels is refused before any of its code
// could run.
CUresult load_image(Context* context, const void* image, std::uint64_t bytes, Module** module) {
  CUDASIM_CHECK(bytes >= sizeof(Elf64_Ehdr) && is_elf_object(*static_cast<const Elf64_Ehdr*>(image)),
                CUDA_ERROR_INVALID_IMAGE);
  constexpr char kMark[] = "cudasim_module_abi";
  CUDASIM_CHECK(::memmem(image, bytes, kMark, sizeof kMark) != nullptr, CUDA_ERROR_INVALID_IMAGE);
  return context->load_module(image, bytes, module);
}

CUresult load_file(Context* context, const char* path, Module** module) {
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  CUDASIM_CHECK(fd >= 0, CUDA_ERROR_FILE_NOT_FOUND);
  struct stat info {};
  void* image = MAP_FAILED;
  std::uint64_t bytes = 0;
  if (::fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0) {
    bytes = static_cast<std::uint64_t>(info.st_size);
    image = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
  }
  ::close(fd);
  CUDASIM_CHECK(image != MAP_FAILED, CUDA_ERROR_INVALID_IMAGE);
  const CUresult result = load_image(context, image, bytes, module);
  ::munmap(image, bytes);
  return result;
}

bool is_live(CUfunction handle) {
  const Function* function = from_handle(handle);
  return function != nullptr && function->module->alive;
}

CUresult enter_module(CUmodule handle, Context** context, Module** module) {
  CUDASIM_TRY(enter(context));
  *module = from_handle(handle);
  CUDASIM_CHECK(*module != nullptr && (*module)->alive && (*module)->context == *context,
                CUDA_ERROR_INVALID_HANDLE);
  return CUDA_SUCCESS;
}

bool fill_name(const char* name, RequestMessage* request) {
  if (name == nullptr || std::strlen(name) >= sizeof request->name) return false;
  std::strcpy(request->name, name);
  return true;
}

// Stores the arguments contiguously. The caller passes them as pointers, or packed in the layout of the
// kernel's parameters.
CUresult pack(const Function& function, void** parameters, void** extra, LaunchCommand* command,
              unsigned char* data, std::size_t* bytes) {
  const unsigned char* packed = nullptr;
  std::size_t packed_bytes = 0;
  for (void** item = extra; item != nullptr && *item != CU_LAUNCH_PARAM_END; item += 2) {
    if (*item == CU_LAUNCH_PARAM_BUFFER_POINTER) packed = static_cast<const unsigned char*>(item[1]);
    if (*item == CU_LAUNCH_PARAM_BUFFER_SIZE) packed_bytes = *static_cast<std::size_t*>(item[1]);
  }
  const bool needed = !function.parameters.empty();
  CUDASIM_CHECK(!needed || (parameters != nullptr) != (packed != nullptr), CUDA_ERROR_INVALID_VALUE);
  std::size_t at = 0;
  for (std::size_t i = 0; i < function.parameters.size(); i++) {
    const auto [size, align] = function.parameters[i];
    at = (at + align - 1) / align * align;
    CUDASIM_CHECK(at + size <= kMaxArgumentBytes && (packed == nullptr || at + size <= packed_bytes),
                  CUDA_ERROR_INVALID_VALUE);
    std::memcpy(data + at, packed != nullptr ? packed + at : parameters[i], size);
    command->offsets[i] = static_cast<std::uint32_t>(at);
    at += size;
  }
  command->count = static_cast<std::uint32_t>(function.parameters.size());
  *bytes = at;
  return CUDA_SUCCESS;
}

CUresult fill_launch(Function* function, const CUlaunchConfig& config, void** parameters, void** extra,
                     LaunchCommand* command, unsigned char* data, std::size_t* bytes) {
  CUDASIM_CHECK(function != nullptr && function->module->alive, CUDA_ERROR_INVALID_HANDLE);
  const bool sized = config.gridDimX > 0 && config.gridDimY > 0 && config.gridDimZ > 0 &&
                     config.blockDimX > 0 && config.blockDimX <= kMaxThreads && config.blockDimY == 1 &&
                     config.blockDimZ == 1 && config.gridDimX <= 0x7fffffffU && config.gridDimY <= 65535 &&
                     config.gridDimZ <= 65535 && config.sharedMemBytes <= kMaxSharedBytes;
  CUDASIM_CHECK(sized, CUDA_ERROR_INVALID_VALUE);
  command->header.command = Command::kLaunch;
  command->function = function->address;
  command->grid[0] = config.gridDimX;
  command->grid[1] = config.gridDimY;
  command->grid[2] = config.gridDimZ;
  command->threads = config.blockDimX;
  command->shared_bytes = config.sharedMemBytes;
  return pack(*function, parameters, extra, command, data, bytes);
}

CUresult launch(Function* function, const CUlaunchConfig& config, void** parameters, void** extra) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  CUDASIM_TRY(enter_stream(config.hStream, &context, &stream));
  CUDASIM_CHECK(context == context_stack().back(), CUDA_ERROR_INVALID_HANDLE);
  CUDASIM_CHECK(function != nullptr && function->context == context, CUDA_ERROR_INVALID_HANDLE);
  if (stream->capture != nullptr) {
    LaunchWork work;
    CUDASIM_TRY(make_launch(function, config, parameters, extra, &work));
    return capture_work(stream, std::move(work));
  }
  LaunchCommand command;
  alignas(16) unsigned char data[kMaxArgumentBytes];
  std::size_t bytes = 0;
  CUDASIM_TRY(fill_launch(function, config, parameters, extra, &command, data, &bytes));
  return context->submit(stream, &command, sizeof command, data, bytes, nullptr);
}

}  // namespace

// Returns the length of an image. The section table is the last part of an image.
CUresult image_bytes(const void* image, std::uint64_t* bytes) {
  CUDASIM_CHECK(std::memcmp(image, ELFMAG, SELFMAG) == 0, CUDA_ERROR_INVALID_IMAGE);
  Elf64_Ehdr header;
  std::memcpy(&header, image, sizeof header);
  CUDASIM_CHECK(is_elf_object(header), CUDA_ERROR_INVALID_IMAGE);
  *bytes = header.e_shoff + static_cast<std::uint64_t>(header.e_shnum) * header.e_shentsize;
  CUDASIM_CHECK(header.e_shoff < kMaxImageBytes && *bytes >= sizeof header, CUDA_ERROR_INVALID_IMAGE);
  return CUDA_SUCCESS;
}

CUresult make_launch(Function* function, const CUlaunchConfig& config, void** parameters, void** extra,
                     LaunchWork* out) {
  alignas(16) unsigned char data[kMaxArgumentBytes];
  std::size_t bytes = 0;
  CUDASIM_TRY(fill_launch(function, config, parameters, extra, &out->command, data, &bytes));
  out->function = function;
  out->arguments.assign(data, data + bytes);
  return CUDA_SUCCESS;
}

}  // namespace cudasim

namespace cudasim::api {

CUresult cuModuleLoad(CUmodule* out, const char* path) {
  Context* context = nullptr;
  CUDASIM_TRY(enter(&context));
  CUDASIM_CHECK(out != nullptr && path != nullptr, CUDA_ERROR_INVALID_VALUE);
  Module* module = nullptr;
  CUDASIM_TRY(load_file(context, path, &module));
  *out = reinterpret_cast<CUmodule>(module);
  return CUDA_SUCCESS;
}

CUresult cuModuleLoadData(CUmodule* out, const void* image) {
  Context* context = nullptr;
  CUDASIM_TRY(enter(&context));
  CUDASIM_CHECK(out != nullptr && image != nullptr, CUDA_ERROR_INVALID_VALUE);
  std::uint64_t bytes = 0;
  CUDASIM_TRY(image_bytes(image, &bytes));
  Module* module = nullptr;
  CUDASIM_TRY(load_image(context, image, bytes, &module));
  *out = reinterpret_cast<CUmodule>(module);
  return CUDA_SUCCESS;
}

CUresult cuModuleLoadDataEx(CUmodule* out, const void* image, unsigned int, CUjit_option*, void**) {
  return api::cuModuleLoadData(out, image);
}

CUresult cuModuleUnload(CUmodule handle) {
  Context* context = nullptr;
  Module* module = nullptr;
  CUDASIM_TRY(enter_module(handle, &context, &module));
  CUDASIM_TRY(context->synchronize());
  Exclusive lock(Process::get().lock);
  module->alive = false;
  module->image = std::vector<unsigned char>();  // `= {}` would retain its memory
  for (const auto& [name, global] : module->globals) Memory::get().remove_global(global.first);
  return context->call({Request::kModuleUnload, {module->id}});
}

CUresult cuModuleGetFunction(CUfunction* out, CUmodule handle, const char* name) {
  Context* context = nullptr;
  Module* module = nullptr;
  CUDASIM_TRY(enter_module(handle, &context, &module));
  RequestMessage request{Request::kFunction, {module->id}};
  CUDASIM_CHECK(out != nullptr && fill_name(name, &request), CUDA_ERROR_INVALID_VALUE);
  Exclusive lock(Process::get().lock);
  std::unique_ptr<Function>& function = module->functions[name];
  if (function == nullptr) {
    ReplyMessage reply{};
    const CUresult result = context->call(request, &reply);
    if (result != CUDA_SUCCESS) {
      module->functions.erase(name);
      return result;
    }
    function = std::make_unique<Function>();
    function->context = context;
    function->module = module;
    function->name = name;
    function->address = reply.a[0];
    for (std::uint32_t i = 0; i < reply.count && i < 64; i++) {
      function->parameters.emplace_back(reply.parameters[i].size, reply.parameters[i].align);
    }
  }
  *out = reinterpret_cast<CUfunction>(function.get());
  return CUDA_SUCCESS;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr* address, std::size_t* bytes, CUmodule handle, const char* name) {
  Context* context = nullptr;
  Module* module = nullptr;
  CUDASIM_TRY(enter_module(handle, &context, &module));
  RequestMessage request{Request::kGlobal, {module->id}};
  CUDASIM_CHECK(fill_name(name, &request), CUDA_ERROR_INVALID_VALUE);
  Exclusive lock(Process::get().lock);
  auto found = module->globals.find(name);
  if (found == module->globals.end()) {
    ReplyMessage reply{};
    CUDASIM_TRY(context->call(request, &reply));
    Memory::get().add_global(context, reply.a[0], reply.a[1]);
    found = module->globals.emplace(name, std::make_pair(reply.a[0], reply.a[1])).first;
  }
  if (address != nullptr) *address = found->second.first;
  if (bytes != nullptr) *bytes = found->second.second;
  return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction handle) {
  CUDASIM_TRY(Process::get().ready());
  CUDASIM_CHECK(value != nullptr, CUDA_ERROR_INVALID_VALUE);
  CUDASIM_CHECK(is_live(handle), CUDA_ERROR_INVALID_HANDLE);
  *value = 0;
  if (attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK) *value = kMaxThreads;
  if (attribute == CU_FUNC_ATTRIBUTE_NUM_REGS) *value = kRegisters;
  if (attribute == CU_FUNC_ATTRIBUTE_PTX_VERSION || attribute == CU_FUNC_ATTRIBUTE_BINARY_VERSION)
    *value = 90;
  if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) *value = kMaxSharedBytes;
  return attribute >= 0 && attribute < CU_FUNC_ATTRIBUTE_MAX ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) {
  CUDASIM_TRY(Process::get().ready());
  CUDASIM_CHECK(is_live(handle), CUDA_ERROR_INVALID_HANDLE);
  const bool fits = attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                        ? value >= 0 && value <= static_cast<int>(kMaxSharedBytes)
                        : attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
  return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                        unsigned int block_x, unsigned int block_y, unsigned int block_z,
                        unsigned int shared_bytes, CUstream stream, void** parameters, void** extra) {
  const CUlaunchConfig config{grid_x,  grid_y,       grid_z, block_x, block_y,
                              block_z, shared_bytes, stream, nullptr, 0};
  return launch(from_handle(function), config, parameters, extra);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters,
                          void** extra) {
  CUDASIM_CHECK(config != nullptr, CUDA_ERROR_INVALID_VALUE);
  for (unsigned i = 0; i < config->numAttrs; i++) {
    CUDASIM_CHECK(config->attrs != nullptr, CUDA_ERROR_INVALID_VALUE);
    // A priority has no effect in this driver. The other attributes would have an effect, so they are
    // refused.
    const CUlaunchAttributeID id = config->attrs[i].id;
    CUDASIM_CHECK(id == CU_LAUNCH_ATTRIBUTE_IGNORE || id == CU_LAUNCH_ATTRIBUTE_PRIORITY,
                  CUDA_ERROR_NOT_SUPPORTED);
  }
  return launch(from_handle(function), *config, parameters, extra);
}

CUresult cuFuncGetName(const char** name, CUfunction handle) {
  CUDASIM_TRY(Process::get().ready());
  CUDASIM_CHECK(name != nullptr, CUDA_ERROR_INVALID_VALUE);
  CUDASIM_CHECK(is_live(handle), CUDA_ERROR_INVALID_HANDLE);
  *name = from_handle(handle)->name.c_str();
  return CUDA_SUCCESS;
}

CUresult cuFuncGetModule(CUmodule* module, CUfunction handle) {
  CUDASIM_TRY(Process::get().ready());
  CUDASIM_CHECK(module != nullptr, CUDA_ERROR_INVALID_VALUE);
  CUDASIM_CHECK(is_live(handle), CUDA_ERROR_INVALID_HANDLE);
  *module = reinterpret_cast<CUmodule>(from_handle(handle)->module);
  return CUDA_SUCCESS;
}

CUresult cuFuncSetCacheConfig(CUfunction handle, CUfunc_cache config) {
  CUDASIM_TRY(Process::get().ready());
  CUDASIM_CHECK(is_live(handle), CUDA_ERROR_INVALID_HANDLE);
  return config >= CU_FUNC_CACHE_PREFER_NONE && config <= CU_FUNC_CACHE_PREFER_EQUAL
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction handle, int threads,
                                                              std::size_t shared_bytes, unsigned int flags) {
  Context* context = nullptr;
  CUDASIM_TRY(enter(&context));
  CUDASIM_CHECK(blocks != nullptr && threads > 0 && flags <= CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE,
                CUDA_ERROR_INVALID_VALUE);
  CUDASIM_CHECK(is_live(handle), CUDA_ERROR_INVALID_HANDLE);
  const int warps = (threads + 31) / 32;
  *blocks = std::min(kBlocksPerMultiprocessor, kThreadsPerMultiprocessor / (warps * 32));
  if (threads > static_cast<int>(kMaxThreads) || shared_bytes > kMaxSharedBytes) *blocks = 0;
  if (shared_bytes > 0) *blocks = std::min(*blocks, static_cast<int>(kMaxSharedBytes / shared_bytes));
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function, int threads,
                                                     std::size_t shared_bytes) {
  return api::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, shared_bytes,
                                                                   0);
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int* grid, int* threads, CUfunction handle,
                                                   CUoccupancyB2DSize shared_of, std::size_t shared_bytes,
                                                   int limit, unsigned int flags) {
  CUDASIM_CHECK(grid != nullptr && threads != nullptr && limit >= 0, CUDA_ERROR_INVALID_VALUE);
  int best = 0;
  const int max_threads =
      limit == 0 ? static_cast<int>(kMaxThreads) : std::min(limit, static_cast<int>(kMaxThreads));
  for (int size = max_threads; size > 0; size = (size - 1) / 32 * 32) {
    int blocks = 0;
    CUDASIM_TRY(api::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        &blocks, handle, size, shared_of != nullptr ? shared_of(size) : shared_bytes, flags));
    if (blocks * size <= best) continue;
    best = blocks * size;
    *threads = size;
    *grid = blocks;  // the device has one multiprocessor
  }
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialBlockSize(int* grid, int* threads, CUfunction function,
                                          CUoccupancyB2DSize shared_of, std::size_t shared_bytes, int limit) {
  return api::cuOccupancyMaxPotentialBlockSizeWithFlags(grid, threads, function, shared_of, shared_bytes,
                                                        limit, 0);
}

}  // namespace cudasim::api
