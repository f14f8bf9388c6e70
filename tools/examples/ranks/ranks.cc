// SPDX-License-Identifier: Apache-2.0
#include "tools/examples/ranks/ranks.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "libckpt/base/fd.h"
#include "tools/examples/common/gpu.h"

namespace ckpt::examples {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::minutes kMeeting{5};
constexpr std::chrono::milliseconds kAgain{50};

std::uint32_t number_of(const char* variable, std::uint32_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : static_cast<std::uint32_t>(std::strtoul(text, nullptr, 10));
}

std::string text_of(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr) fail(std::string(variable) + " is not set");
  return text;
}

bool wait_until_ready(int fd, short events, Clock::time_point until) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
  pollfd waiting{fd, events, 0};
  return left.count() > 0 && ::poll(&waiting, 1, static_cast<int>(left.count())) > 0;
}

bool read_all(int fd, void* to, std::size_t bytes, Clock::time_point until) {
  auto* at = static_cast<char*>(to);
  while (bytes > 0) {
    if (!wait_until_ready(fd, POLLIN, until)) return false;
    const ssize_t got = ::recv(fd, at, bytes, 0);
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

// Sends the id to each other rank once. Connections that do not name a rank are ignored.
void give(const Ranks& ranks, const ncclUniqueId& id, Clock::time_point until) {
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in here{};
  here.sin_family = AF_INET;
  here.sin_port = htons(static_cast<std::uint16_t>(number_of("MASTER_PORT", 0)));
  const int yes = 1;
  (void)::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (!listener || ::bind(listener.get(), reinterpret_cast<sockaddr*>(&here), sizeof here) != 0 ||
      ::listen(listener.get(), SOMAXCONN) != 0)
    fail("rank 0 cannot listen at MASTER_PORT " + text_of("MASTER_PORT") + ": " + std::strerror(errno));
  std::set<std::uint32_t> given;
  while (given.size() + 1 < ranks.count) {
    if (!wait_until_ready(listener.get(), POLLIN, until)) fail("not all ranks have joined the rendezvous");
    const UniqueFd peer(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    std::uint32_t rank = 0;
    if (!peer ||
        !read_all(peer.get(), &rank, sizeof rank, std::min(until, Clock::now() + std::chrono::seconds(5))))
      continue;
    if (rank == 0 || rank >= ranks.count) continue;
    if (::send(peer.get(), &id, sizeof id, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof id))
      given.insert(rank);
  }
}

UniqueFd dial() {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const std::string host = text_of("MASTER_ADDR");
  if (::getaddrinfo(host.c_str(), text_of("MASTER_PORT").c_str(), &hints, &found) != 0)
    fail("MASTER_ADDR " + host + " cannot be resolved");
  UniqueFd peer(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const bool connected = peer && ::connect(peer.get(), found->ai_addr, found->ai_addrlen) == 0;
  ::freeaddrinfo(found);
  return connected ? std::move(peer) : UniqueFd();
}

ncclUniqueId take(const Ranks& ranks, Clock::time_point until) {
  ncclUniqueId id{};
  while (Clock::now() < until) {
    const UniqueFd peer = dial();
    if (peer && ::send(peer.get(), &ranks.rank, sizeof ranks.rank, MSG_NOSIGNAL) > 0 &&
        read_all(peer.get(), &id, sizeof id, until))
      return id;
    std::this_thread::sleep_for(kAgain);  // rank 0 does not listen yet
  }
  fail("rank 0 cannot be reached at MASTER_ADDR " + text_of("MASTER_ADDR") + ", port " +
       text_of("MASTER_PORT"));
}

}  // namespace

Ranks Ranks::from_environment() {
  Ranks ranks;
  ranks.rank = number_of("RANK", 0);
  ranks.count = number_of("WORLD_SIZE", 1);
  if (ranks.count == 0 || ranks.rank >= ranks.count) fail("RANK and WORLD_SIZE are not consistent", 64);
  return ranks;
}

Communicator::Communicator(Session& session, const Ranks& ranks) : ranks_(ranks) {
  if (session.handle() == nullptr) return;
  std::vector<std::uint32_t> all(ranks.count);
  std::iota(all.begin(), all.end(), 0U);
  if (ckpt_gang(session.handle(), nullptr, nullptr) != CKPT_OK ||
      ckpt_nccl_group(session.handle(), "world", all.data(), ranks.count, ranks.rank, &group_) != CKPT_OK)
    fail(std::string("the group of all ranks: ") + ckpt_last_error());
}

void Communicator::meet() {
  if (get() != nullptr) return;
  const auto until = Clock::now() + kMeeting;
  ncclUniqueId id{};
  if (ranks_.rank == 0) {
    check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    if (ranks_.count > 1) give(ranks_, id, until);
  } else {
    id = take(ranks_, until);
  }
  ncclComm_t made = nullptr;
  check(ncclCommInitRank(&made, static_cast<int>(ranks_.count), id, static_cast<int>(ranks_.rank)),
        "ncclCommInitRank");
  if (group_ != nullptr)
    ckpt_nccl_use(group_, made);
  else
    own_ = made;
}

Communicator::~Communicator() {
  if (own_ != nullptr) ncclCommDestroy(own_);
  ckpt_nccl_end(group_);
}

void Communicator::check(ncclResult_t result, const char* what) const {
  result = ckpt_nccl_settle(get(), result);
  if (result == ncclSuccess) return;
  fail(std::string(what) + " failed: " + ncclGetErrorString(result) + ": " + ncclGetLastError(nullptr));
}

void Communicator::sum(CUdeviceptr values, std::size_t count, ncclDataType_t type) {
  auto* at = reinterpret_cast<void*>(values);
  check(ncclAllReduce(at, at, count, type, ncclSum, get(), current_stream()), "ncclAllReduce");
}

void* Communicator::own_share(CUdeviceptr values, std::size_t share) const {
  return reinterpret_cast<float*>(values) + ranks_.rank * share;
}

void Communicator::sum_shares(CUdeviceptr values, std::size_t share) {
  check(ncclReduceScatter(reinterpret_cast<void*>(values), own_share(values, share), share, ncclFloat32,
                          ncclSum, get(), current_stream()),
        "ncclReduceScatter");
}

void Communicator::send(CUdeviceptr values, std::size_t count, ncclDataType_t type, std::uint32_t to) {
  check(ncclSend(reinterpret_cast<void*>(values), count, type, static_cast<int>(to), get(), current_stream()),
        "ncclSend");
}

void Communicator::receive(CUdeviceptr values, std::size_t count, ncclDataType_t type, std::uint32_t from) {
  check(
      ncclRecv(reinterpret_cast<void*>(values), count, type, static_cast<int>(from), get(), current_stream()),
      "ncclRecv");
}

void Communicator::gather_shares(CUdeviceptr values, std::size_t share) {
  check(ncclAllGather(own_share(values, share), reinterpret_cast<void*>(values), share, ncclFloat32, get(),
                      current_stream()),
        "ncclAllGather");
}

}  // namespace ckpt::examples
