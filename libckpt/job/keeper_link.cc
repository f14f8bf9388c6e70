// SPDX-License-Identifier: Apache-2.0
#include "libckpt/job/keeper_link.h"

#include <unistd.h>

#include <utility>

#include "libckpt/include/ckpt/ckpt.h"

namespace ckpt::job {

Result<std::unique_ptr<KeeperLink>> KeeperLink::connect(const std::string& path) {
  CKPT_TRY(socket, local::Socket::connect(path));
  const local::Hello hello{static_cast<std::uint32_t>(::getpid()), CKPT_ABI_VERSION};
  CKPT_TRYV(socket.send({0, 0, hello}));
  CKPT_TRY(answer, socket.receive());
  if (answer.transfer != local::Transfer::kDone) {
    return Error(ErrorCode::kUnavailable, "The keeper at " + path + " closed the connection");
  }
  if (const auto* failed = std::get_if<local::Failed>(&answer.message.body)) return local::to_error(*failed);
  const auto* welcome = std::get_if<local::Welcome>(&answer.message.body);
  if (welcome == nullptr)
    return Error(ErrorCode::kProtocol, "The keeper at " + path + " did not welcome this process");
  CKPT_TRY(page, local::ControlPageMapping::open(std::move(answer.descriptors.front())));
  return std::unique_ptr<KeeperLink>(new KeeperLink(std::move(socket), std::move(page), *welcome));
}

Result<void> KeeperLink::send(std::uint64_t request, local::Body body, std::span<const int> descriptors) {
  const std::lock_guard lock(send_mutex_);
  CKPT_TRYV(socket_.send({0, request, std::move(body)}, descriptors));
  return ok();
}

}  // namespace ckpt::job
