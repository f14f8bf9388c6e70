// SPDX-License-Identifier: Apache-2.0
// Tests the features of this machine's CUDA driver that transparent mode depends on. The first question is
// whether a released context survives cuCheckpointProcess* while its memory is held elsewhere (open
// descriptor, mapping, nothing). The second question is whether that memory can return to the same address,
// also under two users and on another GPU.
//
// Processes: this process never calls the driver. For each variant it forks two processes that do: the job
// and the agent. The job owns the memory, without root's rights in the variants with two users. The agent
// imports the memory and checkpoints the job by pid. Over a socket, each is ordered to do one step at a time.
// A step that does not answer in time is "hung": both processes are killed, and the next variant gets new
// ones. This program links only libc. The two processes load libcuda.so.1.
//
// Outcomes of a step: passed; failed (with the CUresult); hung; ended (the process exited); not possible here
// (with the reason). Times are milliseconds spent inside driver calls. Exit: 0 all that is possible here
// passed; 1 a step failed or hung; 2 wrong usage; 3 no driver or no GPU.
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <dlfcn.h>
#include <errno.h>
#include <getopt.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// clang-format off
#define REQUIRED_FUNCTIONS(X)                                                                                 \
  X(cuInit) X(cuGetErrorName) X(cuDriverGetVersion) X(cuDeviceGetCount) X(cuDeviceGet) X(cuDeviceGetName)     \
  X(cuDeviceGetUuid_v2) X(cuDevicePrimaryCtxRetain) X(cuCtxSetCurrent) X(cuCtxSynchronize) X(cuMemAlloc_v2)   \
  X(cuMemcpyHtoD_v2) X(cuMemcpyDtoH_v2) X(cuMemGetAllocationGranularity) X(cuMemAddressReserve)               \
  X(cuMemCreate) X(cuMemMap) X(cuMemSetAccess) X(cuMemUnmap) X(cuMemRelease) X(cuMemExportToShareableHandle)  \
  X(cuMemImportFromShareableHandle) X(cuMemGetAllocationPropertiesFromHandle) X(cuModuleLoadData)             \
  X(cuModuleGetFunction) X(cuLaunchKernel)
#define CHECKPOINT_FUNCTIONS(X)                                                                \
  X(cuCheckpointProcessGetState) X(cuCheckpointProcessLock) X(cuCheckpointProcessCheckpoint)   \
  X(cuCheckpointProcessRestore) X(cuCheckpointProcessUnlock)
// clang-format on

static struct {
#define DECLARE(name) __typeof__(&name) name;
  REQUIRED_FUNCTIONS(DECLARE) CHECKPOINT_FUNCTIONS(DECLARE)
} driver;

enum { kMaxRegions = 64, kMaxGpus = 16, kCanaryBytes = 1 << 20, kLockMs = 5000, kKillMs = 5000 };

// The flags of a variant: what is held elsewhere during the checkpoint, by which users, and on which GPU.
enum {
  kFd = 1,       // the agent retains the descriptors
  kMap = 2,      // the agent retains its mapping
  kKeeps = 4,    // the owner does not unmap and release the memory, so the driver saves it
  kPrivate = 8,  // the memory was never exported
  kTwoUsers = 16,
  kOtherGpu = 32,
};
enum Outcome { kPassed, kImpossible, kFailed, kEnded, kHung, kOutcomes };
static const char* const kOutcomeNames[] = {"passed", "not possible here", "failed", "ended", "hung"};
enum Actor { kJob, kAgent, kActors };
static const char* const kActorNames[] = {"job", "agent"};

struct Reply {
  int outcome;
  int code;
  double milliseconds;
  char code_name[64];
  char detail[192];
};

static struct {
  int regions;
  size_t region_bytes;
  uid_t uid;
  double step_seconds;
  double budget_seconds;
  const char* json;
  const char* only;
} options = {4, 16 << 20, 65534, 20, 120, NULL, NULL};

static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

// ---- The two processes: the state of this process, and its steps ----

static struct {
  int peer;
  pid_t job;
  CUdevice device;
  CUdeviceptr range;   // the address range of all regions, reserved once
  CUdeviceptr canary;  // plain memory that the driver's checkpoint saves
  int handles;         // the number of regions with a handle
  int mapped;          // the number of mapped regions
  CUmemGenericAllocationHandle handle[kMaxRegions];
  int fd[kMaxRegions];
  CUfunction add_one;
  unsigned char* expected;
  unsigned char* seen;
  struct Reply reply;
} side;

static size_t total_bytes(void) {
  return (size_t)options.regions * options.region_bytes;
}

static void failed_call(const char* call, CUresult code) {
  const char* name = NULL;
  side.reply.outcome = kFailed;
  side.reply.code = (int)code;
  if (driver.cuGetErrorName == NULL || driver.cuGetErrorName(code, &name) != CUDA_SUCCESS || name == NULL)
    name = "unnamed";
  snprintf(side.reply.code_name, sizeof side.reply.code_name, "%s", name);
  snprintf(side.reply.detail, sizeof side.reply.detail, "%.*s", (int)strcspn(call, "("), call);
}

static void report_outcome(enum Outcome outcome, const char* detail) {
  side.reply.outcome = (int)outcome;
  snprintf(side.reply.detail, sizeof side.reply.detail, "%s", detail);
}

// Calls the driver and adds the time of the call. On an error, leaves the step.
#define TRY(call)                                 \
  do {                                            \
    const double begin_ = now_ms();               \
    const CUresult code_ = driver.call;           \
    side.reply.milliseconds += now_ms() - begin_; \
    if (code_ != CUDA_SUCCESS) {                  \
      failed_call(#call, code_);                  \
      return;                                     \
    }                                             \
  } while (0)

static void open_driver(int unused) {
  (void)unused;
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    report_outcome(kImpossible, dlerror());
    return;
  }
#define FIND(name) *(void**)&driver.name = dlsym(library, #name);
  REQUIRED_FUNCTIONS(FIND)
  CHECKPOINT_FUNCTIONS(FIND)
#define NEED(name)                                          \
  if (driver.name == NULL) {                                \
    report_outcome(kImpossible, "the driver lacks " #name); \
    return;                                                 \
  }
  REQUIRED_FUNCTIONS(NEED)
  TRY(cuInit(0));
}

static void make_context(int device) {
  CUcontext context;
  TRY(cuDeviceGet(&side.device, device));
  TRY(cuDevicePrimaryCtxRetain(&context, side.device));
  TRY(cuCtxSetCurrent(context));
}

// A kernel that adds 1 to each 32-bit word. It is PTX, so that any real driver can compile it for its GPU.
static const char kPtx[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry add_one(.param .u64 words, .param .u32 count) {\n"
    ".reg .pred %p; .reg .b32 %r<7>; .reg .b64 %a<3>;\n"
    "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.u32 %r4, %r1, %r2, %r3;\n"
    "ld.param.u32 %r5, [count]; setp.ge.u32 %p, %r4, %r5; @%p ret;\n"
    "ld.param.u64 %a1, [words]; cvta.to.global.u64 %a1, %a1; mad.wide.u32 %a2, %r4, 4, %a1;\n"
    "ld.global.u32 %r6, [%a2]; add.u32 %r6, %r6, 1; st.global.u32 [%a2], %r6; ret; }\n";

static void load_module(int unused) {
  (void)unused;
  CUmodule module;
  TRY(cuModuleLoadData(&module, kPtx));
  TRY(cuModuleGetFunction(&side.add_one, module, "add_one"));
}
// Loads the module. A driver that does not compile PTX is not a failure of this probe.
static void try_module(int unused) {
  load_module(unused);
  if (side.reply.outcome == kFailed) side.reply.outcome = kImpossible;
}

static void make_pattern(uint64_t seed, size_t bytes) {
  uint64_t* words = (uint64_t*)side.expected;
  for (size_t i = 0; i < bytes / 8; i++) {
    uint64_t z = (i + 1) * 0x9E3779B97F4A7C15u + seed;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    words[i] = z ^ (z >> 27);
  }
}

static void compare(CUdeviceptr from, size_t bytes) {
  memset(side.seen, 0, bytes);
  TRY(cuMemcpyDtoH_v2(side.seen, from, bytes));
  if (memcmp(side.seen, side.expected, bytes) == 0) return;
  size_t at = 0;
  while (side.seen[at] == side.expected[at]) at++;
  report_outcome(kFailed, "different bytes than were written");
  snprintf(side.reply.detail + strlen(side.reply.detail), 64, ", first at offset %zu", at);
}

enum { kCanarySeed = 77 };
static void make_canary(int unused) {
  (void)unused;
  TRY(cuMemAlloc_v2(&side.canary, kCanaryBytes));
  make_pattern(kCanarySeed, kCanaryBytes);
  TRY(cuMemcpyHtoD_v2(side.canary, side.expected, kCanaryBytes));
}
static void check_canary(int unused) {
  (void)unused;
  make_pattern(kCanarySeed, kCanaryBytes);
  compare(side.canary, kCanaryBytes);
}

static CUmemAllocationProp properties(bool exportable) {
  CUmemAllocationProp p;
  memset(&p, 0, sizeof p);
  p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  p.location.id = side.device;
  if (exportable) p.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return p;
}

static void reserve(int unused) {
  (void)unused;
  TRY(cuMemAddressReserve(&side.range, total_bytes(), 0, 0, 0));
}
static void create(int exportable) {
  const CUmemAllocationProp p = properties(exportable != 0);
  size_t unit = 0;
  TRY(cuMemGetAllocationGranularity(&unit, &p, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  if (unit == 0 || options.region_bytes % unit != 0) {
    report_outcome(kImpossible, "--region-mib is not a multiple of the driver's granularity");
    return;
  }
  while (side.handles < options.regions) {
    TRY(cuMemCreate(&side.handle[side.handles], options.region_bytes, &p, 0));
    side.handles++;
  }
}
static void map(int unused) {
  (void)unused;
  while (side.mapped < options.regions) {
    TRY(cuMemMap(side.range + (size_t)side.mapped * options.region_bytes, options.region_bytes, 0,
                 side.handle[side.mapped], 0));
    side.mapped++;
  }
}
static void set_access(int unused) {
  (void)unused;
  CUmemAccessDesc access;
  memset(&access, 0, sizeof access);
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = side.device;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  TRY(cuMemSetAccess(side.range, total_bytes(), &access, 1));
}
static void fill(int seed) {
  make_pattern((uint64_t)seed, total_bytes());
  TRY(cuMemcpyHtoD_v2(side.range, side.expected, total_bytes()));
  TRY(cuCtxSynchronize());
}
static void verify(int seed) {
  make_pattern((uint64_t)seed, total_bytes());
  compare(side.range, total_bytes());
}
// Runs a kernel that was loaded before the checkpoint on the memory that is mapped now.
static void run_kernel(int seed) {
  if (side.add_one == NULL) {
    report_outcome(kImpossible, "the driver did not load the kernel");
    return;
  }
  uint32_t count = (uint32_t)(total_bytes() / 4);
  CUdeviceptr words = side.range;
  void* arguments[] = {&words, &count};
  TRY(cuLaunchKernel(side.add_one, count / 256, 1, 1, 256, 1, 1, 0, NULL, arguments, NULL));
  TRY(cuCtxSynchronize());
  make_pattern((uint64_t)seed, total_bytes());
  uint32_t* expected = (uint32_t*)side.expected;
  for (uint32_t i = 0; i < count; i++) expected[i]++;
  compare(side.range, total_bytes());
}
static void synchronize(int unused) {
  (void)unused;
  TRY(cuCtxSynchronize());
}
static void unmap(int unused) {
  (void)unused;
  while (side.mapped > 0) {
    side.mapped--;
    TRY(cuMemUnmap(side.range + (size_t)side.mapped * options.region_bytes, options.region_bytes));
  }
}
static void release(int unused) {
  (void)unused;
  while (side.handles > 0) {
    side.handles--;
    TRY(cuMemRelease(side.handle[side.handles]));
  }
}
static void close_descriptors(int unused) {
  (void)unused;
  for (int i = 0; i < options.regions; i++) {
    if (side.fd[i] >= 0) close(side.fd[i]);
    side.fd[i] = -1;
  }
}
// Removes what a failed or finished part left behind, so that the next part begins with only the reservation.
static void drop(int unused) {
  const struct Reply clean = side.reply;
  unmap(unused);
  release(unused);
  close_descriptors(unused);
  side.mapped = 0;
  side.handles = 0;
  side.reply = clean;
}

static void export_all(int unused) {
  (void)unused;
  for (int i = 0; i < options.regions; i++) {
    TRY(cuMemExportToShareableHandle(&side.fd[i], side.handle[i], CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                     0));
  }
}
// Exports imported memory. No rule states whether an importer may do this, so a refusal is not a failure.
static void export_imported(int unused) {
  export_all(unused);
  if (side.reply.outcome == kFailed) side.reply.outcome = kImpossible;
}
static void send_descriptors(int unused) {
  (void)unused;
  for (int i = 0; i < options.regions; i++) {
    char byte = 'm';
    struct iovec part = {&byte, 1};
    union {
      struct cmsghdr header;
      char space[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control.space};
    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    control.header.cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(&control.header), &side.fd[i], sizeof(int));
    if (sendmsg(side.peer, &message, MSG_NOSIGNAL) != 1) report_outcome(kFailed, strerror(errno));
  }
  close_descriptors(unused);
}
static void receive_descriptors(int unused) {
  (void)unused;
  for (int i = 0; i < options.regions; i++) {
    char byte;
    struct iovec part = {&byte, 1};
    union {
      struct cmsghdr header;
      char space[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control.space};
    const struct cmsghdr* item = NULL;
    if (recvmsg(side.peer, &message, MSG_CMSG_CLOEXEC) == 1) item = CMSG_FIRSTHDR(&message);
    if (item == NULL || item->cmsg_type != SCM_RIGHTS) {
      report_outcome(kFailed, "no descriptor arrived");
      return;
    }
    memcpy(&side.fd[i], CMSG_DATA(item), sizeof(int));
  }
}
static void import_all(int unused) {
  (void)unused;
  while (side.handles < options.regions) {
    TRY(cuMemImportFromShareableHandle(&side.handle[side.handles], (void*)(intptr_t)side.fd[side.handles],
                                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    side.handles++;
  }
}
// Reports on which of the agent's GPUs the memory that the job allocated is located.
static void show_location(int unused) {
  (void)unused;
  CUmemAllocationProp p;
  memset(&p, 0, sizeof p);
  TRY(cuMemGetAllocationPropertiesFromHandle(&p, side.handle[0]));
  snprintf(side.reply.detail, sizeof side.reply.detail, "on GPU %d", p.location.id);
}

#define NEED_CHECKPOINT(name)                               \
  if (driver.name == NULL) {                                \
    report_outcome(kImpossible, "the driver lacks " #name); \
    return;                                                 \
  }

static void check_state(int wanted) {
  static const char* const kNames[] = {"RUNNING", "LOCKED", "CHECKPOINTED", "FAILED"};
  NEED_CHECKPOINT(cuCheckpointProcessGetState)
  CUprocessState state = CU_PROCESS_STATE_FAILED;
  TRY(cuCheckpointProcessGetState(side.job, &state));
  if ((int)state == wanted) return;
  report_outcome(kFailed, "the process is ");
  snprintf(side.reply.detail + strlen(side.reply.detail), 48, "%s, not %s",
           (unsigned)state < 4 ? kNames[state] : "in an unknown state", kNames[wanted]);
}
static void lock_job(int unused) {
  (void)unused;
  NEED_CHECKPOINT(cuCheckpointProcessLock)
  CUcheckpointLockArgs arguments;
  memset(&arguments, 0, sizeof arguments);
  arguments.timeoutMs = kLockMs;
  TRY(cuCheckpointProcessLock(side.job, &arguments));
}
static void checkpoint_job(int unused) {
  (void)unused;
  NEED_CHECKPOINT(cuCheckpointProcessCheckpoint)
  CUcheckpointCheckpointArgs arguments;
  memset(&arguments, 0, sizeof arguments);
  TRY(cuCheckpointProcessCheckpoint(side.job, &arguments));
}
static void restore_job(int unused) {
  (void)unused;
  NEED_CHECKPOINT(cuCheckpointProcessRestore)
  TRY(cuCheckpointProcessRestore(side.job, NULL));
}
// Restores the job with GPUs 0 and 1 exchanged. The pairs must name every GPU of the process, so all are
// listed.
static void restore_elsewhere(int unused) {
  (void)unused;
  NEED_CHECKPOINT(cuCheckpointProcessRestore)
#if CUDA_VERSION >= 13000
  CUcheckpointGpuPair pairs[kMaxGpus];
  int count = 0;
  TRY(cuDeviceGetCount(&count));
  if (count > kMaxGpus) count = kMaxGpus;
  for (int i = 0; i < count; i++) {
    TRY(cuDeviceGetUuid_v2(&pairs[i].oldUuid, i));
    TRY(cuDeviceGetUuid_v2(&pairs[i].newUuid, i < 2 ? 1 - i : i));
  }
  CUcheckpointRestoreArgs arguments;
  memset(&arguments, 0, sizeof arguments);
  arguments.gpuPairs = pairs;
  arguments.gpuPairsCount = (unsigned)count;
  side.reply.milliseconds = 0;
  TRY(cuCheckpointProcessRestore(side.job, &arguments));
#else
  report_outcome(kImpossible, "built with a CUDA Toolkit before 13.0, which has no gpuPairs");
#endif
}
static void unlock_job(int unused) {
  (void)unused;
  NEED_CHECKPOINT(cuCheckpointProcessUnlock)
  CUcheckpointUnlockArgs arguments;
  memset(&arguments, 0, sizeof arguments);
  TRY(cuCheckpointProcessUnlock(side.job, &arguments));
}

// ---- The steps of a variant ----

// The parts of a variant. A failure ends the current part, and the next part begins with the state that
// `drop` leaves. A failure in the first two parts ends the variant.
enum Part { kStart, kMemory, kCheckpoint, kGiveBack, kOther, kAnew, kParts };
enum { kFill = 1, kFillOther = 2, kFillAnew = 3 };

struct Step {
  enum Part part;
  enum Actor actor;
  const char* name;
  void (*run)(int);
  int argument;
  int require;  // flags that must all be set
  int forbid;   // flags of which none may be set
  int any;      // flags of which at least one must be set, if not 0
  bool optional;
  bool always;  // true if the step runs even after a failure in its part
};

// clang-format off
static const struct Step kSteps[] = {
    {kStart, kJob, "load driver, cuInit", open_driver, 0},
    {kStart, kJob, "make context", make_context, 0},
    {kStart, kAgent, "load driver, cuInit", open_driver, 0},
    {kStart, kAgent, "make context", make_context, 0},
    {kStart, kJob, "load kernel", try_module, 0, .optional = true},
    {kStart, kJob, "plain memory for the driver to save and restore", make_canary, 0},

    {kMemory, kJob, "reserve", reserve, 0},
    {kMemory, kJob, "create, exportable", create, 1, .forbid = kPrivate},
    {kMemory, kJob, "create, private", create, 0, .require = kPrivate},
    {kMemory, kJob, "map", map, 0},
    {kMemory, kJob, "set access", set_access, 0},
    {kMemory, kJob, "fill", fill, kFill},
    {kMemory, kAgent, "reserve", reserve, 0},
    {kMemory, kJob, "export", export_all, 0, .forbid = kPrivate},
    {kMemory, kJob, "send descriptors, close them", send_descriptors, 0, .forbid = kPrivate},
    {kMemory, kAgent, "receive descriptors", receive_descriptors, 0, .forbid = kPrivate},
    {kMemory, kAgent, "import", import_all, 0, .forbid = kPrivate},
    {kMemory, kAgent, "map", map, 0, .forbid = kPrivate},
    {kMemory, kAgent, "set access", set_access, 0, .forbid = kPrivate},
    {kMemory, kAgent, "verify", verify, kFill, .forbid = kPrivate},
    {kMemory, kAgent, "unmap", unmap, 0, .forbid = kPrivate | kMap},
    {kMemory, kAgent, "release", release, 0, .forbid = kPrivate | kMap},
    {kMemory, kAgent, "close descriptors", close_descriptors, 0, .forbid = kPrivate | kFd},
    {kMemory, kJob, "synchronize", synchronize, 0},
    {kMemory, kJob, "unmap, address kept", unmap, 0, .forbid = kKeeps},
    {kMemory, kJob, "release", release, 0, .forbid = kKeeps},

    {kCheckpoint, kAgent, "state is RUNNING", check_state, CU_PROCESS_STATE_RUNNING},
    {kCheckpoint, kAgent, "cuCheckpointProcessLock", lock_job, 0},
    {kCheckpoint, kAgent, "state is LOCKED", check_state, CU_PROCESS_STATE_LOCKED},
    {kCheckpoint, kAgent, "cuCheckpointProcessCheckpoint", checkpoint_job, 0},
    {kCheckpoint, kAgent, "state is CHECKPOINTED", check_state, CU_PROCESS_STATE_CHECKPOINTED},
    {kCheckpoint, kAgent, "import meanwhile", import_all, 0, .require = kFd, .forbid = kMap},
    {kCheckpoint, kAgent, "map meanwhile", map, 0, .require = kFd, .forbid = kMap},
    {kCheckpoint, kAgent, "set access meanwhile", set_access, 0, .require = kFd, .forbid = kMap},
    {kCheckpoint, kAgent, "verify meanwhile", verify, kFill, .any = kFd | kMap},
    {kCheckpoint, kAgent, "unmap again", unmap, 0, .require = kFd, .forbid = kMap},
    {kCheckpoint, kAgent, "release again", release, 0, .require = kFd, .forbid = kMap},
    {kCheckpoint, kAgent, "cuCheckpointProcessRestore", restore_job, 0, .forbid = kOtherGpu},
    {kCheckpoint, kAgent, "cuCheckpointProcessRestore, gpuPairs", restore_elsewhere, 0, .require = kOtherGpu},
    {kCheckpoint, kAgent, "cuCheckpointProcessUnlock", unlock_job, 0, .always = true},
    {kCheckpoint, kAgent, "state is RUNNING again", check_state, CU_PROCESS_STATE_RUNNING, .always = true},
    {kCheckpoint, kJob, "verify plain memory", check_canary, 0},
    {kCheckpoint, kJob, "verify kept memory", verify, kFill, .require = kKeeps},
    {kCheckpoint, kJob, "kernel on kept memory", run_kernel, kFill, .require = kKeeps, .optional = true},

    {kGiveBack, kAgent, "export imported memory", export_imported, 0, .require = kMap, .forbid = kFd | kOtherGpu},
    {kGiveBack, kAgent, "send descriptors back", send_descriptors, 0, .any = kFd | kMap, .forbid = kOtherGpu},
    {kGiveBack, kJob, "receive descriptors", receive_descriptors, 0, .any = kFd | kMap, .forbid = kOtherGpu},
    {kGiveBack, kJob, "import back", import_all, 0, .any = kFd | kMap, .forbid = kOtherGpu},
    {kGiveBack, kJob, "close descriptors", close_descriptors, 0, .any = kFd | kMap, .forbid = kOtherGpu},
    {kGiveBack, kJob, "map at the same address", map, 0, .any = kFd | kMap, .forbid = kOtherGpu},
    {kGiveBack, kJob, "set access", set_access, 0, .any = kFd | kMap, .forbid = kOtherGpu},
    {kGiveBack, kJob, "verify", verify, kFill, .any = kFd | kMap, .forbid = kOtherGpu},
    {kGiveBack, kJob, "kernel on it", run_kernel, kFill, .any = kFd | kMap, .forbid = kOtherGpu, .optional = true},

    {kOther, kAgent, "make context on GPU 1", make_context, 1, .require = kOtherGpu},
    {kOther, kAgent, "create on GPU 1", create, 1, .require = kOtherGpu},
    {kOther, kAgent, "map", map, 0, .require = kOtherGpu},
    {kOther, kAgent, "set access", set_access, 0, .require = kOtherGpu},
    {kOther, kAgent, "fill", fill, kFillOther, .require = kOtherGpu},
    {kOther, kAgent, "export", export_all, 0, .require = kOtherGpu},
    {kOther, kAgent, "send descriptors", send_descriptors, 0, .require = kOtherGpu},
    {kOther, kJob, "receive descriptors", receive_descriptors, 0, .require = kOtherGpu},
    {kOther, kJob, "import memory of GPU 1", import_all, 0, .require = kOtherGpu},
    {kOther, kJob, "map at the same address", map, 0, .require = kOtherGpu},
    {kOther, kJob, "set access", set_access, 0, .require = kOtherGpu},
    {kOther, kJob, "verify", verify, kFillOther, .require = kOtherGpu},
    {kOther, kJob, "kernel on it", run_kernel, kFillOther, .require = kOtherGpu, .optional = true},

    {kAnew, kJob, "create anew", create, 1},
    {kAnew, kJob, "map at the same address", map, 0},
    {kAnew, kJob, "set access", set_access, 0},
    {kAnew, kJob, "export", export_all, 0},
    {kAnew, kJob, "send descriptors", send_descriptors, 0},
    {kAnew, kAgent, "receive descriptors", receive_descriptors, 0},
    {kAnew, kAgent, "import", import_all, 0},
    {kAnew, kAgent, "where it lies", show_location, 0},
    {kAnew, kAgent, "map", map, 0},
    {kAnew, kAgent, "set access", set_access, 0},
    {kAnew, kAgent, "fill", fill, kFillAnew},
    {kAnew, kJob, "verify what the agent filled", verify, kFillAnew},
    {kAnew, kJob, "kernel on it", run_kernel, kFillAnew, .optional = true},
};
// clang-format on
enum { kStepCount = sizeof kSteps / sizeof kSteps[0], kDropCommand = -1, kShowGpus = -2 };

struct Facts {
  int outcome;
  int version;
  int gpus;
  char reason[288];
  char name[kMaxGpus][64];
};

static void show_gpus(int socket) {
  struct Facts facts;
  memset(&facts, 0, sizeof facts);
  open_driver(0);
  if (side.reply.outcome == kPassed && (driver.cuDriverGetVersion(&facts.version) != CUDA_SUCCESS ||
                                        driver.cuDeviceGetCount(&facts.gpus) != CUDA_SUCCESS)) {
    report_outcome(kFailed, "the driver shows no GPUs");
  }
  for (int i = 0; i < facts.gpus && i < kMaxGpus; i++) {
    CUdevice device;
    if (driver.cuDeviceGet(&device, i) == CUDA_SUCCESS)
      driver.cuDeviceGetName(facts.name[i], sizeof facts.name[i], device);
  }
  facts.outcome = side.reply.outcome;
  snprintf(facts.reason, sizeof facts.reason, "%s%s%s", side.reply.detail, side.reply.code != 0 ? ": " : "",
           side.reply.code_name);
  if (write(socket, &facts, sizeof facts) != sizeof facts) _exit(1);
}

// Runs the loop of the job's and the agent's process: receives a step's index, runs the step, and sends the
// answer.
static _Noreturn void serve(int socket) {
  side.expected = malloc(total_bytes() + kCanaryBytes);
  side.seen = malloc(total_bytes() + kCanaryBytes);
  if (side.expected == NULL || side.seen == NULL) _exit(1);
  for (int i = 0; i < kMaxRegions; i++) side.fd[i] = -1;
  int command;
  while (read(socket, &command, sizeof command) == sizeof command) {
    memset(&side.reply, 0, sizeof side.reply);
    if (command == kShowGpus) {
      show_gpus(socket);
      continue;
    }
    if (command == kDropCommand) {
      drop(0);
    } else {
      kSteps[command].run(kSteps[command].argument);
    }
    if (side.reply.outcome == kPassed)
      snprintf(side.reply.code_name, sizeof side.reply.code_name, "CUDA_SUCCESS");
    if (write(socket, &side.reply, sizeof side.reply) != sizeof side.reply) break;
  }
  _exit(0);
}

// ---- The process that never calls the driver ----

struct Process {
  pid_t pid;
  int socket;
};

static double began;

static double seconds_left(void) {
  return options.budget_seconds - (now_ms() - began) / 1e3;
}

static bool become_user(uid_t uid) {
  if (setgroups(0, NULL) != 0 || setgid((gid_t)uid) != 0 || setuid(uid) != 0) return false;
  // This call restores the state that a program has after exec. Otherwise /proc/PID of the job would belong
  // to root, unlike that of any started program.
  return prctl(PR_SET_DUMPABLE, 1) == 0;
}

static struct Process start(int peer, int other_peer, pid_t job, bool drop_rights) {
  struct Process process = {-1, -1};
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return process;
  fflush(NULL);
  process.pid = fork();
  if (process.pid == 0) {
    close(ends[0]);
    if (other_peer >= 0) close(other_peer);
    if (drop_rights && !become_user(options.uid)) _exit(1);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    side.peer = peer;
    side.job = job;
    serve(ends[1]);
  }
  close(ends[1]);
  process.socket = ends[0];
  return process;
}

// Reads an answer of `size` bytes. Returns kHung if none arrives in time, and kEnded if the process has
// exited.
static enum Outcome hear(struct Process* process, void* answer, size_t size) {
  double left = options.step_seconds < seconds_left() ? options.step_seconds : seconds_left();
  const double deadline = now_ms() + 1e3 * (left > 0 ? left : 0);
  for (;;) {
    struct pollfd wait = {process->socket, POLLIN, 0};
    const double rest = deadline - now_ms();
    const int ready = poll(&wait, 1, rest > 0 ? (int)rest + 1 : 0);
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) return kHung;
    return read(process->socket, answer, size) == (ssize_t)size ? kPassed : kEnded;
  }
}

static struct Reply ask(struct Process* process, int command) {
  struct Reply reply;
  memset(&reply, 0, sizeof reply);
  const double begin = now_ms();
  const bool sent = send(process->socket, &command, sizeof command, MSG_NOSIGNAL) == sizeof command;
  const enum Outcome outcome = sent ? hear(process, &reply, sizeof reply) : kEnded;
  if (outcome != kPassed) {
    memset(&reply, 0, sizeof reply);
    reply.outcome = (int)outcome;
    reply.milliseconds = now_ms() - begin;
    snprintf(reply.detail, sizeof reply.detail, outcome == kHung ? "no answer; killed" : "the process ended");
  }
  return reply;
}

// Kills the process. Returns false if the process outlives SIGKILL because it is stuck inside the kernel's
// driver.
static bool end_process(struct Process* process) {
  if (process->pid < 0) return true;
  close(process->socket);
  kill(process->pid, SIGKILL);
  const double deadline = now_ms() + kKillMs;
  sigset_t child;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  while (waitpid(process->pid, NULL, WNOHANG) == 0) {
    const double left = deadline - now_ms();
    if (left <= 0) return false;
    struct timespec time = {(time_t)(left / 1e3), (long)(1e6 * ((long)left % 1000))};
    sigtimedwait(&child, NULL, &time);
  }
  return true;
}

struct Variant {
  const char* name;
  const char* meaning;
  int flags;
};

// Less risky variants come first. Variants that may hang a driver come late.
static const struct Variant kVariants[] = {
    {"kept", "memory kept mapped, never exported: the driver saves and restores it", kKeeps | kPrivate},
    {"closed", "released; descriptors closed, nothing mapped elsewhere", 0},
    {"kept-once-exported", "memory kept mapped; it was exported, and all exports are closed again", kKeeps},
    {"fd", "released; descriptors open elsewhere, not mapped", kFd},
    {"mapped", "released; mapped elsewhere, descriptors closed", kMap},
    {"fd-mapped", "released; descriptors open and mapped elsewhere", kFd | kMap},
    {"closed-two-users", "as closed; the job without root's rights", kTwoUsers},
    {"fd-two-users", "as fd; the job without root's rights", kFd | kTwoUsers},
    {"fd-mapped-two-users", "as fd-mapped; the job without root's rights", kFd | kMap | kTwoUsers},
    {"closed-other-gpu", "as closed; restored on another GPU", kOtherGpu},
    {"mapped-other-gpu", "as mapped; restored on another GPU", kMap | kOtherGpu},
    {"fd-mapped-other-gpu", "as fd-mapped; restored on another GPU", kFd | kMap | kOtherGpu},
};
enum { kVariantCount = sizeof kVariants / sizeof kVariants[0] };

struct Result {
  bool ran;
  enum Outcome outcome;
  bool unkillable;
  char reason[320];
  enum Outcome parts[kParts];
  bool part_ran[kParts];
  bool asked[kStepCount];
  struct Reply replies[kStepCount];
};

static bool applies(const struct Step* step, int flags) {
  return (flags & step->require) == step->require && (flags & step->forbid) == 0 &&
         (step->any == 0 || (flags & step->any) != 0);
}

static void print_step(const struct Variant* variant, const struct Step* step, const struct Reply* reply) {
  printf("%-20s %-5s  %-36s %-17s %10.3f ms  %s%s%s\n", variant->name, kActorNames[step->actor], step->name,
         kOutcomeNames[reply->outcome], reply->milliseconds, reply->code_name, reply->detail[0] ? "  " : "",
         reply->detail);
  fflush(stdout);
}

static void record_result(struct Result* result, const struct Step* step, const struct Reply* reply) {
  const enum Outcome outcome = (enum Outcome)reply->outcome;
  if (outcome > result->parts[step->part]) result->parts[step->part] = outcome;
  if (outcome <= result->outcome) return;
  result->outcome = outcome;
  snprintf(result->reason, sizeof result->reason, "%s, %s: %s%s%s", kActorNames[step->actor], step->name,
           reply->detail, reply->code_name[0] ? " " : "", reply->code_name);
}

// Runs the steps in order. A failure ends its part. The variant ends after a failure in the first two parts,
// if a process exits or hangs, or if the job does not run after the checkpoint.
static void run_steps(const struct Variant* variant, struct Process processes[kActors],
                      struct Result* result) {
  bool part_failed = false;
  bool locked = false;
  for (int i = 0; i < kStepCount; i++) {
    const struct Step* step = &kSteps[i];
    if (!applies(step, variant->flags)) continue;
    if (!result->part_ran[step->part]) {
      result->part_ran[step->part] = true;
      part_failed = false;
      // The agent must hold the memory until the part kGiveBack is over, so nothing is dropped before that.
      for (int actor = 0; actor < kActors && step->part > kGiveBack; actor++) {
        const struct Reply dropped = ask(&processes[actor], kDropCommand);
        if (dropped.outcome < kEnded) continue;
        record_result(result, step, &dropped);
        return;
      }
    }
    if (part_failed && !(step->always && locked)) continue;
    struct Reply reply = ask(&processes[step->actor], i);
    // Another user may not have permission to use this driver's devices.
    if (step->part == kStart && step->actor == kJob && (variant->flags & kTwoUsers) &&
        reply.outcome == kFailed) {
      reply.outcome = kImpossible;
    }
    result->asked[i] = true;
    result->replies[i] = reply;
    print_step(variant, step, &reply);
    const bool bad = reply.outcome != kPassed;
    locked = locked || (step->run == lock_job && !bad);
    if (!bad || (step->optional && reply.outcome == kImpossible)) continue;
    record_result(result, step, &reply);
    part_failed = true;
    if (reply.outcome >= kEnded || step->part <= kMemory || (step->always && step->run == check_state))
      return;
  }
}

static void run_variant(const struct Variant* variant, struct Result* result) {
  int peers[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, peers) != 0) {
    result->outcome = kFailed;
    snprintf(result->reason, sizeof result->reason, "no socket: %s", strerror(errno));
    return;
  }
  struct Process processes[kActors];
  processes[kJob] = start(peers[0], peers[1], 0, (variant->flags & kTwoUsers) != 0);
  processes[kAgent] = start(peers[1], peers[0], processes[kJob].pid, false);
  close(peers[0]);
  close(peers[1]);
  result->ran = true;
  run_steps(variant, processes, result);
  for (int actor = kActors - 1; actor >= 0; actor--) {
    if (end_process(&processes[actor])) continue;
    result->unkillable = true;
    printf("%-20s %-5s  outlives SIGKILL: stuck inside the kernel's driver\n", variant->name,
           kActorNames[actor]);
  }
}

// Returns why a variant cannot run on this machine, or null if it can.
static const char* obstacle(const struct Variant* variant, const struct Facts* facts) {
  if ((variant->flags & kTwoUsers) && geteuid() != 0) return "two users need root";
  if ((variant->flags & kOtherGpu) && facts->gpus < 2) return "there is one GPU";
  if (options.only != NULL && strcmp(options.only, variant->name) != 0) return "not requested";
  if (seconds_left() < options.step_seconds / 2) return "the time limit for all variants was reached";
  return NULL;
}

// ---- Output ----

static void json_text(FILE* out, const char* text) {
  fputc('"', out);
  for (; *text; text++) {
    const unsigned char c = (unsigned char)*text;
    if (c == '"' || c == '\\') fputc('\\', out);
    if (c < 0x20) {
      fprintf(out, "\\u%04x", c);
    } else {
      fputc(c, out);
    }
  }
  fputc('"', out);
}
static void json_field(FILE* out, const char* key, const char* text, const char* after) {
  json_text(out, key);
  fputs(": ", out);
  json_text(out, text);
  fputs(after, out);
}

static const char* const kPartNames[] = {
    "start", "memory", "checkpoint", "give_back", "import_on_other_gpu", "make_anew"};

static void write_variant(FILE* out, const struct Variant* variant, const struct Result* result) {
  fputs("    {", out);
  json_field(out, "name", variant->name, ", ");
  json_field(out, "meaning", variant->meaning, ", ");
  json_field(out, "outcome", kOutcomeNames[result->outcome], ", ");
  json_field(out, "reason", result->reason, ",\n     \"parts\": {");
  const char* between = "";
  for (int part = 0; part < kParts; part++) {
    if (!result->part_ran[part]) continue;
    fputs(between, out);
    json_field(out, kPartNames[part], kOutcomeNames[result->parts[part]], "");
    between = ", ";
  }
  fprintf(out, "},\n     \"unkillable\": %s, \"steps\": [", result->unkillable ? "true" : "false");
  between = "\n";
  for (int i = 0; i < kStepCount; i++) {
    if (!result->asked[i]) continue;
    fprintf(out, "%s      {", between);
    json_field(out, "process", kActorNames[kSteps[i].actor], ", ");
    json_field(out, "step", kSteps[i].name, ", ");
    json_field(out, "outcome", kOutcomeNames[result->replies[i].outcome], ", ");
    fprintf(out, "\"ms\": %.4f, \"code\": %d, ", result->replies[i].milliseconds, result->replies[i].code);
    json_field(out, "result", result->replies[i].code_name, ", ");
    json_field(out, "detail", result->replies[i].detail, "}");
    between = ",\n";
  }
  fputs("]}", out);
}

static bool write_json(const struct Facts* facts, const struct Result* results) {
  FILE* out = fopen(options.json, "w");
  if (out == NULL) return false;
  fprintf(out, "{\"driver_version\": %d, \"regions\": %d, \"region_bytes\": %zu, \"root\": %s, ",
          facts->version, options.regions, options.region_bytes, geteuid() == 0 ? "true" : "false");
  json_field(out, "no_driver", facts->reason, ", \"gpus\": [");
  for (int i = 0; i < facts->gpus && i < kMaxGpus; i++) {
    if (i > 0) fputs(", ", out);
    json_text(out, facts->name[i]);
  }
  fputs("],\n  \"variants\": [\n", out);
  for (int i = 0; i < kVariantCount; i++) {
    write_variant(out, &kVariants[i], &results[i]);
    fputs(i + 1 < kVariantCount ? ",\n" : "\n", out);
  }
  fputs("  ]}\n", out);
  return fclose(out) == 0;
}

static struct Facts ask_facts(void) {
  struct Facts facts;
  memset(&facts, 0, sizeof facts);
  struct Process process = start(-1, -1, 0, false);
  const int command = kShowGpus;
  if (process.pid < 0 || send(process.socket, &command, sizeof command, MSG_NOSIGNAL) != sizeof command) {
    facts.outcome = kFailed;
    snprintf(facts.reason, sizeof facts.reason, "cannot start a process for it");
  } else {
    const enum Outcome outcome = hear(&process, &facts, sizeof facts);
    if (outcome != kPassed) {
      memset(&facts, 0, sizeof facts);
      facts.outcome = (int)outcome;
      snprintf(facts.reason, sizeof facts.reason,
               outcome == kHung ? "cuInit hung" : "the process ended in cuInit");
    }
  }
  end_process(&process);
  return facts;
}

static double number(const char* text, double low, double high) {
  char* end = NULL;
  const double value = strtod(text, &end);
  if (end != text && *end == '\0' && value >= low && value <= high) return value;
  fprintf(stderr, "driver_probe: %s: a number from %.0f to %.0f is expected\n", text, low, high);
  exit(2);
}

static const char kUsage[] =
    "driver_probe [--json FILE] [--regions 4] [--region-mib 16] [--uid 65534] [--step-seconds 20] "
    "[--budget-seconds 120] [--only VARIANT]\nChecks what a transparent move requires of the CUDA driver; "
    "one line per step. --uid: the job's user in variants with two users (needs root).\n";

static void read_options(int argc, char** argv) {
  static const struct option kOptions[] = {
      {"json", 1, NULL, 'j'}, {"regions", 1, NULL, 'r'},      {"region-mib", 1, NULL, 'm'},
      {"uid", 1, NULL, 'u'},  {"step-seconds", 1, NULL, 's'}, {"budget-seconds", 1, NULL, 'b'},
      {"only", 1, NULL, 'o'}, {"help", 0, NULL, 'h'},         {NULL, 0, NULL, 0}};
  for (int c; (c = getopt_long(argc, argv, "", kOptions, NULL)) != -1;) {
    switch (c) {
      case 'j':
        options.json = optarg;
        break;
      case 'r':
        options.regions = (int)number(optarg, 1, kMaxRegions);
        break;
      case 'm':
        options.region_bytes = (size_t)number(optarg, 2, 4096) << 20;
        break;
      case 'u':
        options.uid = (uid_t)number(optarg, 1, 4e9);
        break;
      case 's':
        options.step_seconds = number(optarg, 1, 600);
        break;
      case 'b':
        options.budget_seconds = number(optarg, 1, 3600);
        break;
      case 'o':
        options.only = optarg;
        break;
      case 'h':
        fputs(kUsage, stdout);
        exit(0);
      default:
        fputs(kUsage, stderr);
        exit(2);
    }
  }
  if (optind != argc) {
    fputs(kUsage, stderr);
    exit(2);
  }
}

int main(int argc, char** argv) {
  read_options(argc, argv);
  began = now_ms();
  sigset_t child;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  sigprocmask(SIG_BLOCK, &child, NULL);

  static struct Result results[kVariantCount];
  struct Facts facts = ask_facts();
  const bool usable = facts.outcome == kPassed && facts.gpus > 0;
  if (!usable && facts.reason[0] == '\0')
    snprintf(facts.reason, sizeof facts.reason, "the driver finds no GPU");
  printf("driver %d.%d, %d GPUs%s%s\n", facts.version / 1000, facts.version % 1000 / 10, facts.gpus,
         facts.reason[0] ? ": " : "", facts.reason);
  bool failed = false;
  for (int i = 0; i < kVariantCount; i++) {
    const char* why = usable ? obstacle(&kVariants[i], &facts) : facts.reason;
    if (why == NULL) {
      run_variant(&kVariants[i], &results[i]);
    } else {
      results[i].outcome = kImpossible;
      snprintf(results[i].reason, sizeof results[i].reason, "%s", why);
    }
    failed = failed || results[i].outcome > kImpossible;
  }
  printf("\n");
  for (int i = 0; i < kVariantCount; i++) {
    printf("%-20s %-17s %s%s%s\n", kVariants[i].name, kOutcomeNames[results[i].outcome], kVariants[i].meaning,
           results[i].reason[0] ? "; " : "", results[i].reason);
  }
  if (options.json != NULL && !write_json(&facts, results)) {
    fprintf(stderr, "driver_probe: cannot write %s: %s\n", options.json, strerror(errno));
    return 1;
  }
  return !usable ? 3 : failed ? 1 : 0;
}
