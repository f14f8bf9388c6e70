// SPDX-License-Identifier: Apache-2.0
#include "agent/context_helper/remap_probe.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "agent/context_helper/orders.h"
#include "libckpt/base/clock.h"
#include "libckpt/base/fd.h"
#include "libckpt/inprocess/memory/device_memory.h"

namespace ckpt::context_helper {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint32_t kWord = 0x5ca1ab1e;
constexpr unsigned kLockMs = 10'000;

// ---- messages between the two processes: one byte of order or answer, at most one descriptor, and text with
// an answer

enum class Step : char { kReady = 'r', kImport = 'i', kMake = 'm', kCheck = 'c', kDone = 'd', kFailed = 'f' };

struct Packet {
  Step step = Step::kFailed;
  UniqueFd descriptor;
  std::string text;
};

Result<void> send_packet(int socket, Step step, int descriptor, const std::string& text = {}) {
  std::string bytes(1, static_cast<char>(step));
  bytes += text.substr(0, 500);
  iovec part{bytes.data(), bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (descriptor >= 0) {
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    cmsghdr* right = CMSG_FIRSTHDR(&header);
    right->cmsg_level = SOL_SOCKET;
    right->cmsg_type = SCM_RIGHTS;
    right->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(right), &descriptor, sizeof descriptor);
  }
  if (::sendmsg(socket, &header, MSG_NOSIGNAL) < 0)
    return Error::from_errno("Cannot write to the other process of the probe");
  return ok();
}

Result<Packet> receive_packet(int socket) {
  std::array<char, 512> bytes{};
  iovec part{bytes.data(), bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  ssize_t got;
  do {
    got = ::recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got < 0) return Error::from_errno("Cannot read from the other process of the probe");
  if (got == 0) return Error(ErrorCode::kUnavailable, "The other process of the probe has exited");
  Packet packet;
  packet.step = static_cast<Step>(bytes[0]);
  packet.text.assign(bytes.data() + 1, static_cast<std::size_t>(got) - 1);
  const cmsghdr* right = CMSG_FIRSTHDR(&header);
  if (right != nullptr && right->cmsg_level == SOL_SOCKET && right->cmsg_type == SCM_RIGHTS) {
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(right), sizeof fd);
    packet.descriptor.reset(fd);
  }
  return packet;
}

// Writes a pattern that another process reads next. The driver's call for so small a copy returns before the
// copy is complete. On a busy GPU the other process could then read old content. Therefore the function waits
// for the copy.
Result<void> write_pattern(const Device& device, CUdeviceptr address) {
  CKPT_CUDA_TRY(device.api(), cuMemcpyHtoD_v2(address, &kWord, sizeof kWord));
  CKPT_CUDA_TRY(device.api(), cuCtxSynchronize());
  return ok();
}

Result<void> check_pattern(const Device& device, CUdeviceptr address) {
  std::uint32_t found = 0;
  CKPT_CUDA_TRY(device.api(), cuMemcpyDtoH_v2(&found, address, sizeof found));
  if (found == kWord) return ok();
  return Error(
      ErrorCode::kCorrupt,
      "Data that was written to shared memory by one process was different when the other process read it");
}

Result<std::size_t> granularity(const Device& device) {
  return round_to_granularity(device.api(), device.device(), 1);
}

// ---- the process whose context is saved and restored

class Rank {
 public:
  Rank(int socket, const Device& device) : socket_(socket), device_(device) {}

  Result<void> serve() {
    CKPT_TRYV(send_packet(socket_, Step::kReady, -1));
    for (;;) {
      CKPT_TRY(order, receive_packet(socket_));
      UniqueFd told;
      const Result<void> done = perform(order, told);
      if (done) {
        CKPT_TRYV(send_packet(socket_, Step::kDone, told.get()));
      } else {
        CKPT_TRYV(send_packet(socket_, Step::kFailed, -1, done.error().to_string()));
      }
    }
  }

 private:
  Result<void> perform(Packet& order, UniqueFd& told) {
    const ContextScope scope(device_);
    switch (order.step) {
      case Step::kImport: {
        CKPT_TRY(bytes, granularity(device_));
        CKPT_TRY(memory,
                 ImportedMemory::import(device_.api(), device_.device(), order.descriptor.get(), bytes));
        return check_pattern(device_, memory.pointer());
      }
      case Step::kMake: {
        CKPT_TRY(memory, DeviceMemory::create(device_.api(), device_.device(), 1));
        CKPT_TRY(descriptor, memory.export_fd());
        made_.emplace(std::move(memory));
        told = std::move(descriptor);
        return ok();
      }
      case Step::kCheck: {
        if (!made_) return Error(ErrorCode::kProtocol, "The probe has no memory to check");
        const Result<void> same = check_pattern(device_, made_->pointer());
        made_.reset();
        return same;
      }
      default:
        return Error(ErrorCode::kProtocol, "The probe does not know this order");
    }
  }

  int socket_;
  const Device& device_;
  std::optional<DeviceMemory> made_;
};

// ---- the process that sends the requests, in the roles of the mover and the context helper

class Prober {
 public:
  explicit Prober(Json& facts) : facts_(facts) {}
  ~Prober() {
    if (rank_ <= 0) return;
    ::kill(rank_, SIGKILL);
    ::waitpid(rank_, nullptr, 0);
  }
  Prober(const Prober&) = delete;
  Prober& operator=(const Prober&) = delete;

  Result<void> run() {
    CKPT_TRYV(start_rank());  // started before this process loads the driver
    CKPT_TRYV(look_at_driver());
    CKPT_TRY(here, Device::open(0));
    CKPT_TRY(first, receive_packet(socket_.get()));
    if (first.step != Step::kReady) return Error(ErrorCode::kUnavailable, first.text);
    CKPT_TRYV(save_and_restore(here.api(), nullptr));
    try_memory(here, "import", "own");
    if (gpus_ < 2) {
      note("There is no second GPU to test a move with");
      return ok();
    }
    CKPT_TRY(there, Device::open(1));
    return try_move(here, there);
  }

 private:
  Result<void> start_rank() {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) != 0)
      return Error::from_errno("Cannot create a socket");
    socket_.reset(ends[0]);
    const UniqueFd theirs(ends[1]);
    const std::string number = std::to_string(theirs.get());
    rank_ = ::fork();
    if (rank_ < 0) return Error::from_errno("Cannot start the second process of the probe");
    if (rank_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      socket_.reset();
      show_one_gpu();
      ::execl("/proc/self/exe", "gpumigrate-context", kRankFlag, number.c_str(), nullptr);
      ::_exit(127);
    }
    return ok();
  }

  // Limits this process to one GPU, as in a job's process. Otherwise a restore on another GPU would have to
  // name every GPU that the process sees.
  static void show_one_gpu() {
    const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
    std::string first = visible != nullptr ? visible : "0";
    first = first.substr(0, first.find(','));
    ::setenv("CUDA_VISIBLE_DEVICES", first.c_str(), 1);
  }

  Result<void> look_at_driver() {
    CKPT_TRY(api, load_driver());
    int version = 0;
    CKPT_CUDA_TRY(*api, cuInit(0));
    CKPT_CUDA_TRY(*api, cuDriverGetVersion(&version));
    CKPT_CUDA_TRY(*api, cuDeviceGetCount(&gpus_));
    facts_["version"] = version;
    if (!can_checkpoint(*api))
      return Error(ErrorCode::kNotSupported, "The CUDA driver has no cuCheckpointProcess functions");
    moves_ = version >= kChangesGpu;
    return ok();
  }

  Result<void> save_and_restore(const DriverApi& api, CUcheckpointRestoreArgs* arguments) {
    CUcheckpointLockArgs lock{};
    lock.timeoutMs = kLockMs;
    const Nanos began = now_ns();
    CKPT_CUDA_TRY(api, cuCheckpointProcessLock(rank_, &lock));
    CKPT_CUDA_TRY(api, cuCheckpointProcessCheckpoint(rank_, nullptr));
    const Nanos saved = now_ns();
    CKPT_CUDA_TRY(api, cuCheckpointProcessRestore(rank_, arguments));
    CKPT_CUDA_TRY(api, cuCheckpointProcessUnlock(rank_, nullptr));
    facts_["save_ns"] = saved - began;
    facts_["restore_ns"] = now_ns() - saved;
    return ok();
  }

  Result<void> try_move(const Device& here, const Device& there) {
    if (!moves_ || name_of(here) != name_of(there)) {
      note(
          "This node has no second GPU of the same model, or its driver cannot move a context to another "
          "GPU");
      return ok();
    }
    CUcheckpointGpuPair pair{};
    CKPT_CUDA_TRY(here.api(), cuDeviceGetUuid_v2(&pair.oldUuid, here.device()));
    CKPT_CUDA_TRY(there.api(), cuDeviceGetUuid_v2(&pair.newUuid, there.device()));
    CUcheckpointRestoreArgs arguments{};
    arguments.gpuPairs = &pair;
    arguments.gpuPairsCount = 1;
    CKPT_TRYV(save_and_restore(here.api(), &arguments));
    try_memory(there, "import_moved", "own_moved");
    return ok();
  }

  void try_memory(const Device& device, const char* import, const char* own) {
    const Result<void> imported = try_import(device);
    facts_[import] = imported.has_value();
    if (!imported) note(imported.error().to_string());
    const Result<void> made = try_own(device);
    facts_[own] = made.has_value();
    if (!made) note(made.error().to_string());
  }

  Result<Packet> ask(Step step, int descriptor) {
    CKPT_TRYV(send_packet(socket_.get(), step, descriptor));
    CKPT_TRY(answer, receive_packet(socket_.get()));
    if (answer.step != Step::kDone) return Error(ErrorCode::kNotSupported, answer.text);
    return answer;
  }

  Result<void> try_import(const Device& device) {
    const ContextScope scope(device);
    CKPT_TRY(memory, DeviceMemory::create(device.api(), device.device(), 1));
    CKPT_TRYV(write_pattern(device, memory.pointer()));
    CKPT_TRY(descriptor, memory.export_fd());
    CKPT_TRYV(ask(Step::kImport, descriptor.get()));
    return ok();
  }

  Result<void> try_own(const Device& device) {
    const ContextScope scope(device);
    CKPT_TRY(made, ask(Step::kMake, -1));
    if (!made.descriptor)
      return Error(ErrorCode::kProtocol, "The other process of the probe sent no descriptor of its memory");
    CKPT_TRY(bytes, granularity(device));
    const auto fill = [&]() -> Result<void> {
      CKPT_TRY(memory, ImportedMemory::import(device.api(), device.device(), made.descriptor.get(), bytes));
      return write_pattern(device, memory.pointer());
    };
    const Result<void> filled = fill();
    made.descriptor.reset();
    const auto checked = ask(Step::kCheck, -1);  // always requested, because the check also releases the
                                                 // memory
    CKPT_TRYV(filled);
    CKPT_TRYV(checked);
    return ok();
  }

  std::string name_of(const Device& device) {
    std::array<char, 256> name{};
    device.api().cuDeviceGetName(name.data(), static_cast<int>(name.size()) - 1, device.device());
    return name.data();
  }
  void note(const std::string& text) {
    const std::string before = facts_["problem"].get<std::string>();
    facts_["problem"] = before.empty() ? text : before + "; " + text;
  }

  Json& facts_;
  UniqueFd socket_;
  pid_t rank_ = 0;
  int gpus_ = 0;
  bool moves_ = false;
};

}  // namespace

int probe_remap() {
  Json facts = {{"version", nullptr},      {"import", nullptr},    {"own", nullptr},
                {"import_moved", nullptr}, {"own_moved", nullptr}, {"problem", ""}};
  {
    Prober prober(facts);
    if (const Result<void> ran = prober.run(); !ran) {
      const std::string before = facts["problem"].get<std::string>();
      facts["problem"] = (before.empty() ? "" : before + "; ") + ran.error().to_string();
    }
  }
  const Json line = {{"remap", facts}};
  std::printf("%s\n", line.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
  return std::fflush(stdout) == 0 ? 0 : 1;
}

int probe_remap_rank(int socket) {
  const UniqueFd end(socket);
  const auto serve = [&]() -> Result<void> {
    CKPT_TRY(device, Device::open(0));
    return Rank(end.get(), device).serve();
  };
  const Result<void> ended = serve();
  if (ended.error().code() != ErrorCode::kUnavailable)
    (void)send_packet(end.get(), Step::kFailed, -1, ended.error().to_string()).has_value();
  return 0;
}

}  // namespace ckpt::context_helper
