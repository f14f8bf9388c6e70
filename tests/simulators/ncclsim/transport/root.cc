// SPDX-License-Identifier: Apache-2.0
#include "tests/simulators/ncclsim/transport/root.h"

#include <poll.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace ncclsim {
namespace {

constexpr auto kTimeToRegister = std::chrono::seconds(30);
constexpr auto kTimeToAnswer = std::chrono::seconds(30);
constexpr std::size_t kMaxUnauthenticatedPeers = 256;

}  // namespace

void Root::run() {
  while (!done_) {
    std::vector<pollfd> polled{{listener_.get(), POLLIN, 0}};
    std::vector<Guest*> guests;
    for (Guest& guest : guests_) {
      polled.push_back({guest.socket.get(), POLLIN, 0});
      guests.push_back(&guest);
    }
    if (::poll(polled.data(), polled.size(), milliseconds_until(next_deadline())) < 0) continue;
    for (std::size_t i = 0; i < guests.size() && !done_; i++) look_at(guests[i], polled[i + 1].revents != 0);
    guests_.remove_if([](const Guest& guest) { return !guest.socket.valid(); });
    if (!done_ && polled[0].revents != 0) accept_guests();
  }
}

void Root::look_at(Guest* guest, bool readable) {
  if (!guest->registered()) {
    if (readable && !read_from(guest)) guest->socket.reset();
    if (!guest->registered() && Clock::now() > guest->deadline) guest->socket.reset();
    if (guest->socket.valid() && guest->registered() && !enter(*guest)) guest->socket.reset();
    return;
  }
  if (!readable) return;
  // A rank sends nothing until it receives an answer, so a readable socket means that the rank has exited.
  give_up(ncclRemoteError, "rank " + std::to_string(guest->registration.info.rank) +
                               " is gone before the communicator was complete");
}

void Root::accept_guests() {
  const auto is_stranger = [](const Guest& guest) { return !guest.registered(); };
  for (;;) {
    Descriptor socket = accept_from(listener_.get());
    if (!socket.valid()) return;
    if (static_cast<std::size_t>(std::count_if(guests_.begin(), guests_.end(), is_stranger)) >=
        kMaxUnauthenticatedPeers)
      continue;
    Guest& guest = guests_.emplace_back();
    guest.socket = std::move(socket);
    guest.deadline = Clock::now() + kTimeToRegister;
  }
}

bool Root::read_from(Guest* guest) {
  std::size_t moved = 0;
  char* to = reinterpret_cast<char*>(&guest->registration) + guest->got;
  if (receive_some(guest->socket.get(), to, sizeof guest->registration - guest->got, &moved) != ncclSuccess)
    return false;
  guest->got += moved;
  return true;
}

bool Root::enter(const Guest& guest) {
  const RankInfo& info = guest.registration.info;
  if (guest.registration.secret != secret_) return false;
  if (info.ranks < 1 || info.ranks > kMaxRanks || info.rank < 0 || info.rank >= info.ranks) return false;
  if (expected_ == 0) expected_ = info.ranks;
  if (info.ranks != expected_) {
    give_up(ncclInvalidUsage, "the ranks disagree about their number: " + std::to_string(info.ranks) +
                                  " and " + std::to_string(expected_));
    return true;
  }
  for (const Guest& other : guests_) {
    if (&other == &guest || !other.registered() || other.registration.info.rank != info.rank) continue;
    give_up(ncclInvalidUsage, "rank " + std::to_string(info.rank) + " has come twice");
    return true;
  }
  if (++present_ < expected_) return true;
  std::vector<RankInfo> table(static_cast<std::size_t>(expected_));
  for (const Guest& other : guests_) {
    if (other.registered())
      table[static_cast<std::size_t>(other.registration.info.rank)] = other.registration.info;
  }
  answer_all({}, table);
  return true;
}

void Root::give_up(ncclResult_t result, const std::string& reason) {
  RootAnswer answer;
  answer.result = static_cast<std::uint32_t>(result);
  std::snprintf(answer.text, sizeof answer.text, "%s", reason.c_str());
  answer_all(answer, {});
}

void Root::answer_all(const RootAnswer& answer, const std::vector<RankInfo>& table) {
  const Limits limits{nullptr, Clock::now() + kTimeToAnswer};
  for (Guest& guest : guests_) {
    if (!guest.registered() || !guest.socket.valid()) continue;
    if (send_all(guest.socket.get(), &answer, sizeof answer, limits) != ncclSuccess) continue;
    // The ranks that connect to an exited rank detect its exit.
    [[maybe_unused]] const ncclResult_t sent =
        send_all(guest.socket.get(), table.data(), table.size() * sizeof(RankInfo), limits);
  }
  done_ = true;
}

Clock::time_point Root::next_deadline() const {
  Clock::time_point next = Clock::time_point::max();
  for (const Guest& guest : guests_) {
    if (!guest.registered()) next = std::min(next, guest.deadline);
  }
  return next;
}

}  // namespace ncclsim
