// SPDX-License-Identifier: Apache-2.0
// Stands in for gpumigrate-context. FAKE names its behavior after its orders (see the test). The program
// counts its starts in the file STARTS.
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "agent/context_helper/messages.h"

namespace {

using namespace ckpt::agent::context;

void send_answer(const Answer& answer) {
  const auto packet = ckpt::wire::encode(answer);
  (void)!::send(kSocketFd, packet.data(), packet.size(), MSG_NOSIGNAL);
}

Answer ready(const std::string& behaviour) {
  Answer answer;
  answer.value = behaviour == "same-gpu-only" ? 12080 : 13000;
  answer.device_count = 2;
  answer.can_checkpoint = behaviour != "no-checkpoint";
  if (behaviour == "no-driver") set_error(answer, {ckpt::ErrorCode::kNotSupported, "There is no driver"});
  return answer;
}

Answer answer_to(const Order& order, const std::string& behaviour) {
  Answer answer;
  answer.kind = order.kind;
  answer.id = order.id;
  if (order.kind == Kind::kState) answer.value = static_cast<int>(ProcessState::kLocked);
  if (order.kind == Kind::kRestore && !order.pairs.empty() && order.pairs[0].from[0] != 7)
    set_error(answer, {ckpt::ErrorCode::kInternal, "the pairs did not arrive"});
  if (order.kind == Kind::kLock && behaviour == "refuses")
    set_error(answer, {ckpt::ErrorCode::kTimedOut, std::string(2 * kMaxText, 'x')});
  if (behaviour == "wrong-id") answer.id += 1;
  if (behaviour == "wrong-state") answer.value = 4;
  if (behaviour == "long-text") answer.text = std::string(kMaxText + 1, 'x');
  return answer;
}

bool first_start(const std::string& path) {
  const bool first = ::access(path.c_str(), F_OK) != 0;
  std::ofstream(path, std::ios::app) << "start\n";
  return first;
}

}  // namespace

int main() {
  const std::string behaviour = std::getenv("FAKE");
  const bool first = first_start(std::getenv("STARTS"));
  if (behaviour == "silent") ::pause();
  send_answer(ready(behaviour));
  if (behaviour == "no-driver") return 1;
  std::vector<std::byte> buffer(kMaxOrderBytes);
  for (;;) {
    const ssize_t got = ::recv(kSocketFd, buffer.data(), buffer.size(), 0);
    if (got <= 0) return 0;
    const auto order = parse_order(std::span(buffer).first(static_cast<std::size_t>(got)));
    if (!order.has_value()) return 2;
    if (first && behaviour == "dies") ::kill(::getpid(), SIGKILL);
    if (first && behaviour == "hangs") ::pause();
    if (behaviour == "garbage") {
      (void)!::send(kSocketFd, "garbage", 7, MSG_NOSIGNAL);
      continue;
    }
    send_answer(answer_to(*order, behaviour));
  }
}
