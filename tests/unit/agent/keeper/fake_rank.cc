// SPDX-License-Identifier: Apache-2.0
// A transparent rank without a GPU. Its regions are memory files, and "mapped" means that it holds a memory
// file for each region. In the keeper's tests a keeper starts it. The first argument is the number of regions
// (default 3). Other arguments follow. With "second", a child process requests a session, too. With "rude",
// the rank sends unsolicited messages before it answers. With "strange", it sends messages of a keeper when
// it is described. With "intrudes", it first tries sessions that are not its own. With "twice", it is a
// cooperative program that requests a second session. With "late", it is a cooperative program that stops its
// keeper when a file `go` exists. It then requests its session and ends. With "resumes-once", the rank ends
// at its second resume. With "threads", it has a thread "restorer" and a thread "program".
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "libckpt/base/clock.h"
#include "libckpt/include/ckpt/ckpt.h"
#include "libckpt/inprocess/local/batches.h"
#include "libckpt/inprocess/local/keeper_link.h"
#include "libckpt/inprocess/local/reattach.h"

namespace {

using namespace ckpt;
using namespace ckpt::local;

constexpr std::size_t kBytes = 4096;

class FakeRank {
 public:
  FakeRank(std::unique_ptr<KeeperLink> link, std::uint64_t regions, const std::string& manners)
      : link_(std::move(link)),
        rude_(manners == "rude"),
        strange_(manners == "strange"),
        resumes_once_(manners == "resumes-once") {
    for (std::uint64_t id = 1; id <= regions; ++id) {
      regions_[id] = make();
      const std::string text = "region " + std::to_string(id);
      if (::pwrite(regions_[id].get(), text.data(), text.size(), 0) < 0) std::abort();
    }
  }

  void run() {
    for (;;) {
      Result<Received> received = link_->receive();
      if (!received.has_value() || received->transfer != Transfer::kDone) std::_Exit(9);
      handle(*std::move(received));
    }
  }

 private:
  static UniqueFd make() {
    UniqueFd fd(::memfd_create("fake-region", MFD_CLOEXEC));
    if (!fd || ::ftruncate(fd.get(), kBytes) != 0) std::abort();
    return fd;
  }
  static RegionRecord record(std::uint64_t id) { return {id, 1, kBytes, {}}; }
  void send(std::uint64_t request, Body body, std::span<const int> fds = {}) {
    if (!link_->send(request, std::move(body), fds).has_value()) std::_Exit(8);
  }

  void handle(Received received) {
    const std::uint64_t request = received.message.request;
    Body& body = received.message.body;
    if (rude_) be_rude(request, body);
    if (strange_ && std::holds_alternative<Describe>(body)) return send(request, Attach{});
    if (std::holds_alternative<Describe>(body)) send(request, DescribeEnd{{.movable = 1}});
    if (std::holds_alternative<Export>(body)) {
      export_request_ = request;
      next_ = 1;
      send_batch();
    }
    if (std::holds_alternative<ExportAck>(body)) send_batch();
    if (std::holds_alternative<Pause>(body)) send(request, Paused{now_ns(), now_ns(), 0});
    if (auto* resume = std::get_if<Resume>(&body)) {
      if (resumes_once_ && std::exchange(has_resumed_, true)) std::_Exit(6);
      send(request, Running{resume->incarnation, now_ns(), 1, 0});
    }
    if (auto* held = std::get_if<Release>(&body)) release(request, *held);
    if (auto* batch = std::get_if<MapBatch>(&body)) {
      for (std::size_t i = 0; i < batch->records.size(); ++i)
        regions_[batch->records[i].id] = std::move(received.descriptors[i]);
      send(request, MapAck{batch->sequence});
    }
    if (std::holds_alternative<Map>(body)) map_end(request);
    if (auto* order = std::get_if<Make>(&body)) make_regions(request, *order);
    if (std::holds_alternative<PrepareDump>(body)) leave(request);
  }

  void be_rude(std::uint64_t request, const Body& asked) {
    if (std::holds_alternative<Describe>(asked)) {  // messages that the keeper has not requested
      send(0, Paused{1, 1, 0});
      send(request, Running{9, 1, 1, 0});
      send(request, Released{1});
      send(request, DumpReady{});
    }
    if (std::holds_alternative<Export>(asked)) {
      const UniqueFd other = make();
      const int number = other.get();
      ExportBatch batch{1, {}};
      batch.records.push_back(record(99));
      send(request + 70, std::move(batch), std::span(&number, 1));
    }
    if (std::holds_alternative<Pause>(asked)) send(request + 1, Paused{1, 1, 0});
    if (std::holds_alternative<Resume>(asked)) send(0, Running{9, 1, 1, 0});
    if (std::holds_alternative<Release>(asked)) {
      send(request + 1, Released{1});
      send(request, Mapped{1});
    }
  }

  void send_batch() {
    ExportBatch batch{++sequence_, {}};
    std::vector<int> fds;
    for (; next_ <= regions_.size() && fds.size() < kMaxRecords; ++next_) {
      batch.records.push_back(record(next_));
      fds.push_back(regions_[next_].get());
    }
    if (batch.records.empty()) return send(export_request_, ExportEnd{});
    send(export_request_, std::move(batch), fds);
  }

  void release(std::uint64_t request, const Release& held) {
    std::uint64_t digest = 0;
    for (const auto& [id, fd] : regions_) digest += region_digest(id, 1);
    if (held.discard == 0 && (held.regions != regions_.size() || held.digest != digest))
      return send(request,
                  to_failed(MessageType::kRelease, Error(ErrorCode::kRefused, "not all regions are held")));
    for (auto& [id, fd] : regions_) fd.reset();
    send(request, Released{now_ns()});
  }

  void map_end(std::uint64_t request) {
    std::string said = "mapped:";
    for (auto& [id, fd] : regions_) {
      char text[64] = {};
      if (!fd || ::pread(fd.get(), text, sizeof text - 1, 0) < 0) {
        for (auto& [other, held] : regions_) held.reset();
        return send(request, to_failed(MessageType::kMap,
                                       Error(ErrorCode::kInvalidArgument, "not all regions have come")));
      }
      if (id <= 3) said += " " + std::string(text);
    }
    std::puts(said.c_str());
    std::fflush(stdout);
    send(request, Mapped{now_ns()});
  }

  void make_regions(std::uint64_t request, const Make& order) {
    Made made{order.sequence, {}};
    std::vector<int> fds;
    for (const RegionKey& key : order.records) {
      regions_[key.id] = make();
      made.records.push_back(record(key.id));
      fds.push_back(regions_[key.id].get());
    }
    send(request, std::move(made), fds);
  }

  void leave(std::uint64_t request) {
    if (!link_->leave(request, DumpReady{}).has_value()) std::_Exit(7);
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, reattach_signal());
    siginfo_t info{};
    while (::sigwaitinfo(&wanted, &info) < 0) {
    }
    const auto token = reinterpret_cast<std::uint64_t>(info.si_value.sival_ptr);
    Result<std::unique_ptr<KeeperLink>> link =
        KeeperLink::connect(reattach_address(token), MigrationMode::kTransparent, true);
    if (!link.has_value()) std::_Exit(6);
    link_ = *std::move(link);
  }

  std::unique_ptr<KeeperLink> link_;
  const bool rude_;
  const bool strange_;
  const bool resumes_once_;
  bool has_resumed_ = false;
  std::map<std::uint64_t, UniqueFd> regions_;
  std::uint64_t export_request_ = 0;
  std::uint64_t next_ = 1;
  std::uint64_t sequence_ = 0;
};

// Starts a thread. The thread exists under its name when the call returns.
void start_thread(const char* name) {
  pthread_t thread{};
  const auto sleep = [](void*) -> void* {
    for (;;) ::usleep(1000);
  };
  if (::pthread_create(&thread, nullptr, sleep, nullptr) != 0 || ::pthread_setname_np(thread, name) != 0)
    std::_Exit(4);
}

}  // namespace

int main(int argc, char** argv) {
  sigset_t call;
  sigemptyset(&call);
  sigaddset(&call, reattach_signal());
  ::pthread_sigmask(SIG_BLOCK, &call, nullptr);
  ::pthread_setname_np(::pthread_self(), kServiceThreadName);
  std::printf(
      "preload %s quota %s\n", std::getenv("LD_PRELOAD") != nullptr ? std::getenv("LD_PRELOAD") : "none",
      std::getenv("GPUMIGRATE_GPU_MEMORY") != nullptr ? std::getenv("GPUMIGRATE_GPU_MEMORY") : "none");
  std::fflush(stdout);
  const std::string manners = argc > 1 ? argv[1] : "";
  const bool second = manners == "second";
  if (manners == "intrudes") {
    const bool other_way =
        KeeperLink::connect(std::getenv("CKPT_SOCKET"), MigrationMode::kCooperative).has_value();
    const bool uncalled =
        KeeperLink::connect(std::getenv("CKPT_SOCKET"), MigrationMode::kTransparent, true).has_value();
    std::printf("other way %d uncalled %d\n", other_way ? 1 : 0, uncalled ? 1 : 0);
    std::fflush(stdout);
  }
  if (manners == "late") {
    while (::access("go", F_OK) != 0) ::usleep(1000);
    ::kill(::getppid(), SIGSTOP);
    auto socket = Socket::connect(std::getenv("CKPT_SOCKET"));
    const Hello hello{static_cast<std::uint32_t>(::getpid()), CKPT_ABI_VERSION, MigrationMode::kCooperative,
                      0};
    std::_Exit(socket && socket->send({0, 0, hello}) ? 3 : 4);
  }
  if (manners == "twice") {
    const auto first = KeeperLink::connect(std::getenv("CKPT_SOCKET"), MigrationMode::kCooperative);
    const auto again = KeeperLink::connect(std::getenv("CKPT_SOCKET"), MigrationMode::kCooperative);
    std::printf("first %d again %d\n", first.has_value() ? 1 : 0, again.has_value() ? 1 : 0);
    return 0;
  }
  Result<std::unique_ptr<KeeperLink>> link =
      KeeperLink::connect(std::getenv("CKPT_SOCKET"), MigrationMode::kTransparent);
  if (!link.has_value()) return 5;
  if (second && ::fork() == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    Result<std::unique_ptr<KeeperLink>> own =
        KeeperLink::connect(std::getenv("CKPT_SOCKET"), MigrationMode::kTransparent);
    if (!own.has_value()) return 5;
    for (;;) ::pause();
  }
  if (manners == "threads") {
    for (const char* const name : {"restorer", "program"}) start_thread(name);
  }
  FakeRank rank(
      *std::move(link),
      std::strtoull(manners.c_str(), nullptr, 10) > 0 ? std::strtoull(manners.c_str(), nullptr, 10) : 3,
      manners);
  rank.run();
}
