// SPDX-License-Identifier: Apache-2.0
#include "agent/keeper/lazy_pages/server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "libckpt/base/fault.h"

namespace ckpt::lazy_pages {
namespace {

constexpr int kWaitForChangeMs = 1;  // pause while a page cannot be copied
constexpr int kWaitForCriuMs = 1000;

}  // namespace

Server::Server(Server&& other) noexcept
    : files_(std::exchange(other.files_, {})),
      missing_(std::move(other.missing_)),
      processes_(std::move(other.processes_)),
      is_restored_(other.is_restored_) {}

Server::~Server() {
  for (const auto& [number, file] : files_) ::munmap(file.memory, file.bytes);
}

Result<Server> Server::create(const std::string& folder) {
  CKPT_TRY(plan, read_plan(folder));
  Server server;
  for (const MissingRange& range : plan) {
    CKPT_TRY(from, server.map_pages(folder, range));
    server.missing_[range.process].add({range.address, range.bytes, from});
  }
  return server;
}

Result<const std::byte*> Server::map_pages(const std::string& folder, const MissingRange& range) {
  Mapping& file = files_[range.pages_file];
  const std::string path = folder + "/pages-" + std::to_string(range.pages_file) + ".img";
  if (file.memory == nullptr) {
    const UniqueFd opened(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat facts {};
    if (!opened || ::fstat(opened.get(), &facts) != 0) return Error::from_errno("Cannot open " + path);
    file.bytes = static_cast<std::uint64_t>(facts.st_size);
    if (file.bytes == 0) return Error(ErrorCode::kCorrupt, path + " is empty");
    void* const memory = ::mmap(nullptr, file.bytes, PROT_READ, MAP_SHARED, opened.get(), 0);
    if (memory == MAP_FAILED) {
      files_.erase(range.pages_file);
      return Error::from_errno("Cannot map " + path);
    }
    file.memory = static_cast<std::byte*>(memory);
  }
  if (range.offset + range.bytes > file.bytes)
    return Error(ErrorCode::kCorrupt, path + " is shorter than the plan of missing pages");
  return file.memory + range.offset;
}

Result<void> Server::receive_process(RestoringCriu& criu) {
  CKPT_TRY(process, criu.next());
  is_restored_ = !process.has_value();
  if (is_restored_) fault_point(FaultPoint::kMemoryFollows);
  if (is_restored_ || !process->faults) return ok();
  const auto missing = missing_.find(process->id);
  processes_.emplace_back(std::move(process->faults),
                          missing == missing_.end() ? MissingMemory() : std::move(missing->second));
  return ok();
}

Result<void> Server::run(int listener, Nanos deadline) {
  CKPT_TRY(criu, RestoringCriu::accept(listener, deadline));
  while (!is_restored_ || !processes_.empty()) {
    if (!is_restored_ && now_ns() > deadline)
      return Error(ErrorCode::kTimedOut, "CRIU's restore did not finish in time");
    CKPT_TRYV(run_once(criu));
  }
  return ok();
}

Result<void> Server::run_once(RestoringCriu& criu) {
  std::vector<pollfd> watched = {{is_restored_ ? -1 : criu.fd(), POLLIN, 0}};
  int timeout = is_restored_ ? 0 : kWaitForCriuMs;
  for (const ProcessPages& process : processes_) {
    watched.push_back({process.fd(), POLLIN, 0});
    if (process.is_behind()) timeout = kWaitForChangeMs;
  }
  if (::poll(watched.data(), watched.size(), timeout) < 0 && errno != EINTR)
    return Error::from_errno("Cannot wait for processes");
  if (watched[0].revents != 0) {
    CKPT_TRYV(receive_process(criu));
  }
  std::vector<ProcessPages> forked;
  for (ProcessPages& process : processes_) {
    CKPT_TRYV(process.read_events(forked));
    CKPT_TRYV(process.bring_waiting());
    if (!is_restored_) continue;
    CKPT_TRYV(process.bring_some());
  }
  for (ProcessPages& child : forked) processes_.push_back(std::move(child));
  if (is_restored_) processes_.remove_if([](const ProcessPages& process) { return process.is_done(); });
  return ok();
}

}  // namespace ckpt::lazy_pages
