// SPDX-License-Identifier: Apache-2.0
// Plays the agent of a mover process: starts the mover with one end of a socketpair, sends it orders and
// reads its messages. The file also provides a job's memory: exportable allocations with host access, in this
// process.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <functional>
#include <string>
#include <vector>

#include <ckpt/ckpt.h>

#include "libckpt/base/random.h"
#include "libckpt/inprocess/memory/device_memory.h"
#include "libckpt/protocol/wire/mover_messages.h"
#include "tests/unit/libckpt/datapath/engine/engine_pair.h"

namespace ckpt::engine::test {

namespace messages = wire::mover;

class MoverProcess {
 public:
  explicit MoverProcess(int gpu, const std::string& node,
                        const std::vector<std::string>& extra_environment = {}) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
      throw std::runtime_error("socketpair");
    socket_.reset(ends[0]);
    const UniqueFd theirs(ends[1]);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    // A descriptor that is already 3 would keep its close-on-exec flag. The descriptor is therefore
    // duplicated through another number.
    ::posix_spawn_file_actions_adddup2(&actions, theirs.get(), 100);
    ::posix_spawn_file_actions_adddup2(&actions, 100, messages::kSocketFd);
    ::posix_spawn_file_actions_addclose(&actions, 100);
    std::vector<char*> environment;
    for (char** e = environ; *e != nullptr; ++e) environment.push_back(*e);
    std::vector<std::string> extra = extra_environment;
    for (std::string& e : extra) environment.push_back(e.data());
    environment.push_back(nullptr);
    std::string program = CKPT_MOVER_PROGRAM;
    char* argv[] = {program.data(), nullptr};
    const int spawned = ::posix_spawn(&pid_, program.c_str(), &actions, nullptr, argv, environment.data());
    ::posix_spawn_file_actions_destroy(&actions);
    if (spawned != 0) throw std::runtime_error("posix_spawn");
    messages::Configure configure;
    configure.node = node;
    configure.gpu = static_cast<std::uint32_t>(gpu);
    configure.chunk_bytes = 64 * kKiB;
    send(configure);
    ready = expect<messages::MoverReady>();
  }
  ~MoverProcess() {
    socket_.reset();
    if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
  }
  MoverProcess(const MoverProcess&) = delete;
  MoverProcess& operator=(const MoverProcess&) = delete;

  void send(const messages::Message& message, const std::vector<int>& fds = {}) {
    if (auto sent = messages::send_message(socket_.get(), message, fds); !sent)
      throw std::runtime_error(sent.error().to_string());
  }
  // Returns the next message of this kind; other messages are stored in `seen`. A failed session throws
  // unless its failure is the expected message.
  template <class M>
  M expect(UniqueFd* fd = nullptr) {
    while (true) {
      auto received = messages::receive_message(socket_.get());
      if (!received) throw std::runtime_error(received.error().to_string());
      messages::Packet packet = *std::move(received);
      if (auto* found = std::get_if<M>(&packet.message)) {
        if (fd != nullptr && !packet.fds.empty()) *fd = std::move(packet.fds.front());
        return std::move(*found);
      }
      if (const auto* failed = std::get_if<messages::SessionFailed>(&packet.message);
          failed != nullptr && !std::is_same_v<M, messages::SessionEnded>)  // the peer may have ended first
        throw std::runtime_error("session failed: " + failed->failure.text);
      if (const auto* mover_failed = std::get_if<messages::MoverFailed>(&packet.message))
        throw std::runtime_error("mover failed: " + mover_failed->failure.text);
      seen.push_back(std::move(packet.message));
    }
  }
  template <class M>
  [[nodiscard]] std::size_t count_seen() const {
    return static_cast<std::size_t>(
        std::count_if(seen.begin(), seen.end(), [](const auto& m) { return std::holds_alternative<M>(m); }));
  }
  void kill() { ::kill(pid_, SIGKILL); }
  // Waits for the end of the process. Returns true if SIGKILL ended it.
  bool wait_killed() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  }
  int wait_exit() {
    socket_.reset();
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  messages::MoverReady ready;
  std::vector<messages::Message> seen;

 private:
  UniqueFd socket_;
  pid_t pid_ = -1;
};

// The memory of a job on one device: regions, and the tensors in the regions.
class JobMemory {
 public:
  explicit JobMemory(const Device& device) : device_(device) {}
  ~JobMemory() {
    const ContextScope scope(device_);
    regions_.clear();
  }

  std::uint64_t add_region(std::uint64_t bytes) {
    const ContextScope scope(device_);
    regions_.emplace(next_, must(DeviceMemory::create(device_.api(), device_.device(), bytes)));
    return next_++;
  }
  void free_region(std::uint64_t id) {
    const ContextScope scope(device_);
    regions_.erase(id);
    std::erase_if(tensors, [id](const auto& t) { return t.region == id; });
  }
  void add_tensor(const std::string& name, std::uint64_t region, std::uint64_t offset, std::uint64_t floats,
                  std::uint32_t kind = CKPT_PARAMETER) {
    wire::TensorInfo tensor;
    tensor.name = name;
    tensor.region = region;
    tensor.offset = offset;
    tensor.bytes = floats * 4;
    tensor.dtype = CKPT_F32;
    tensor.kind = kind;
    tensor.shape = {floats};
    tensors.push_back(tensor);
  }
  [[nodiscard]] const wire::TensorInfo& tensor(const std::string& name) const {
    for (const auto& t : tensors)
      if (t.name == name) return t;
    throw std::runtime_error("no tensor " + name);
  }
  void write(const std::string& name, std::uint64_t offset, std::span<const std::byte> bytes) const {
    const ContextScope scope(device_);
    const auto& t = tensor(name);
    if (device_.api().cuMemcpyHtoD_v2(regions_.at(t.region).pointer() + t.offset + offset, bytes.data(),
                                      bytes.size()) != CUDA_SUCCESS)
      throw std::runtime_error("cuMemcpyHtoD");
  }
  [[nodiscard]] std::vector<std::byte> read(const std::string& name) const {
    const ContextScope scope(device_);
    const auto& t = tensor(name);
    std::vector<std::byte> out(t.bytes);
    if (device_.api().cuMemcpyDtoH_v2(out.data(), regions_.at(t.region).pointer() + t.offset, t.bytes) !=
        CUDA_SUCCESS)
      throw std::runtime_error("cuMemcpyDtoH");
    return out;
  }
  [[nodiscard]] std::uint64_t free_bytes() const {
    const ContextScope scope(device_);
    std::size_t free = 0;
    std::size_t total = 0;
    if (device_.api().cuMemGetInfo_v2(&free, &total) != CUDA_SUCCESS)
      throw std::runtime_error("cuMemGetInfo");
    return free;
  }
  void attach_region(MoverProcess& mover, const messages::SessionKey& key, std::uint64_t id) const {
    const ContextScope scope(device_);
    const DeviceMemory& memory = regions_.at(id);
    messages::AttachRegions request;
    request.session = key;
    request.batch = id;
    request.regions.emplace_back(id, 1, memory.bytes());
    const UniqueFd fd = must(memory.export_fd());
    mover.send(request, {fd.get()});
    EXPECT_EQ(mover.expect<messages::Attached>().batch, id);
  }
  // Attaches all regions and tensors, as an agent does after a rank's export.
  void attach(MoverProcess& mover, const messages::SessionKey& key) const {
    for (const auto& [id, memory] : regions_) attach_region(mover, key, id);
    messages::AttachTensors request;
    request.session = key;
    request.tensors = tensors;
    mover.send(request);
  }

  std::vector<wire::TensorInfo> tensors;

 private:
  const Device& device_;
  std::map<std::uint64_t, DeviceMemory> regions_;
  std::uint64_t next_ = 1;
};

}  // namespace ckpt::engine::test
