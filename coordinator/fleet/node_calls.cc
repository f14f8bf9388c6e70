// SPDX-License-Identifier: Apache-2.0
#include "coordinator/fleet/node_calls.h"

namespace ckpt::coordinator {
namespace {

using wire::FrameType;

constexpr std::chrono::milliseconds kLogGrace{10000};
constexpr std::chrono::milliseconds kInspection{30000};
constexpr std::uint64_t kLargestLog = std::uint64_t{1} << 62;

}  // namespace

NodeCalls::NodeCalls(const NodeTable& nodes, StoreSync& sync, NodeFrames& frames,
                     control::asio::any_io_executor executor)
    : nodes_(nodes), sync_(sync), executor_(std::move(executor)) {
  subscribe_answers<wire::Reply>(frames, FrameType::kReply);
  subscribe_answers<wire::LogData>(frames, FrameType::kLogData);
  subscribe_answers<wire::ProcessFacts>(frames, FrameType::kProcessFacts);
  subscribe_answers<wire::CheckpointStoreGrant>(frames, FrameType::kCheckpointStoreGrant);
  subscribe_answers<wire::ImageFacts>(frames, FrameType::kImageFacts);
  subscribe_answers<wire::JobFacts>(frames, FrameType::kJobFacts);
  subscribe_answers<wire::HandoverFacts>(frames, FrameType::kHandoverFacts);
  subscribe_answers<wire::ListensForCheck>(frames, FrameType::kListensForCheck);
  subscribe_answers<wire::NodeReached>(frames, FrameType::kNodeReached);
  subscribe_answers<wire::KeyMade>(frames, FrameType::kKeyMade);
  subscribe_answers<wire::RankGathered>(frames, FrameType::kRankGathered);
  subscribe_answers<gang::RankGroups>(frames, FrameType::kRankGroups);
  subscribe_answers<wire::MoveNeeds>(frames, FrameType::kMoveNeeds);
}

bool NodeCalls::has_room(const std::string& node) const {
  const Node* entry = nodes_.find(node);
  return entry != nullptr && entry->connected() && entry->connection->queued_bytes() <= kMaxBeforeRelay;
}

bool NodeCalls::relay(const std::string& node, const wire::CommitMessage& message) {
  return has_room(node) && send_now(node, message);
}

void NodeCalls::on_disconnected(const std::string& node, const Error& reason) {
  for (auto& [id, pending] : *pending_) {
    if (pending->node != node || pending->answer) continue;
    pending->answer = Error(ErrorCode::kUnavailable, "Node " + node + " disconnected: " + reason.to_string());
    pending->wake.cancel();
  }
}

void NodeCalls::finish(std::uint64_t request, const std::string& node, Answer answer) {
  const auto at = pending_->find(request);
  if (at == pending_->end() || at->second->node != node || at->second->answer)
    return;  // the request is no longer pending, is pending at another node, or already has its answer
  at->second->answer = std::move(answer);
  at->second->wake.cancel();
}

control::Task<Result<wire::ProcessFacts>> NodeCalls::inspect(std::string node, wire::InspectProcess request) {
  co_return co_await ask<wire::ProcessFacts>(std::move(node), std::move(request), kInspection);
}

control::Task<Result<wire::JobFacts>> NodeCalls::describe(std::string node, wire::DescribeJob request) {
  co_return co_await ask<wire::JobFacts>(std::move(node), std::move(request), kInspection);
}

control::Task<Result<wire::HandoverFacts>> NodeCalls::describe(std::string node,
                                                               wire::DescribeHandover request) {
  co_return co_await ask<wire::HandoverFacts>(std::move(node), std::move(request), kInspection);
}

control::Task<Result<wire::CheckpointStoreGrant>> NodeCalls::grant_checkpoint_store(
    std::string node, wire::GrantCheckpointStore request, std::chrono::milliseconds timeout) {
  co_return co_await ask<wire::CheckpointStoreGrant>(std::move(node), std::move(request), timeout);
}

control::Task<Result<wire::RankGathered>> NodeCalls::gather(std::string node, wire::GatherRank request,
                                                            std::chrono::milliseconds timeout) {
  co_return co_await ask<wire::RankGathered>(std::move(node), std::move(request), timeout);
}

control::Task<Result<gang::RankGroups>> NodeCalls::ask_groups(std::string node, gang::AskGroups request,
                                                              std::chrono::milliseconds timeout) {
  co_return co_await ask<gang::RankGroups>(std::move(node), std::move(request), timeout);
}

control::Task<Result<wire::ImageFacts>> NodeCalls::read_image(std::string node, wire::ReadImage request,
                                                              std::chrono::milliseconds timeout) {
  co_return co_await ask<wire::ImageFacts>(std::move(node), std::move(request), timeout);
}

control::Task<Result<wire::ListensForCheck>> NodeCalls::listen_for_check(std::string node,
                                                                         wire::ListenForCheck request,
                                                                         std::chrono::milliseconds timeout) {
  co_return co_await ask<wire::ListensForCheck>(std::move(node), std::move(request), timeout);
}

control::Task<Result<wire::NodeReached>> NodeCalls::reach_node(std::string node, wire::ReachNode request,
                                                               std::chrono::milliseconds timeout) {
  co_return co_await ask<wire::NodeReached>(std::move(node), std::move(request), timeout);
}

control::Task<Result<std::optional<wire::MoveNeeds>>> NodeCalls::check_move(
    std::string node, wire::CheckMove request, std::chrono::milliseconds timeout) {
  request.request_id = next_request_++;
  auto answer = co_await exchange(node, request, request.request_id, timeout);
  if (!answer) co_return answer.error();
  if (const auto* reply = std::get_if<wire::Reply>(&*answer)) {
    if (!reply->ok) co_return reply->to_error();
    co_return std::optional<wire::MoveNeeds>();
  }
  auto* needs = std::get_if<wire::MoveNeeds>(&*answer);
  if (needs == nullptr || !request.requests_needs)
    co_return Error(ErrorCode::kProtocol, "Node " + node + " sent an answer that does not match the request");
  co_return std::optional(std::move(*needs));
}

control::Task<Result<void>> NodeCalls::check_target(std::string node, wire::CheckTarget request,
                                                    std::chrono::milliseconds timeout) {
  CKPT_CO_TRYV(co_await ask<wire::Reply>(std::move(node), std::move(request), timeout));
  co_return ok();
}

control::Task<Result<wire::KeyMade>> NodeCalls::ask_for_key(std::string node) {
  co_return co_await ask<wire::KeyMade>(std::move(node), wire::AskForKey(), kInspection);
}

control::Task<Result<wire::LogData>> NodeCalls::read_log(std::string node, wire::ReadLog request) {
  request.request_id = next_request_++;
  const auto timeout =
      std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::nanoseconds(request.follow_ns)) +
      kLogGrace;
  auto answer = co_await exchange(node, request, request.request_id, timeout);
  if (!answer) co_return answer.error();
  if (const auto* reply = std::get_if<wire::Reply>(&*answer)) {
    if (reply->ok) co_return Error(ErrorCode::kProtocol, "Node " + node + " sent an answer without a log");
    co_return reply->to_error();
  }
  if (!std::holds_alternative<wire::LogData>(*answer))
    co_return Error(ErrorCode::kProtocol, "Node " + node + " sent an answer that is not a log");
  auto data = std::get<wire::LogData>(*std::move(answer));
  const bool is_asked_for = data.offset >= request.offset;  // the offset may be higher than requested if
                                                            // earlier bytes of the log were deleted, or are
                                                            // too old
  const bool is_covered = request.with_times ? data.covers <= request.limit : data.covers == 0;
  if (!is_asked_for || !is_covered || data.bytes.size() > request.limit || data.offset > kLargestLog)
    co_return Error(ErrorCode::kProtocol,
                    "Node " + node + " sent a different part of the log from the one that was requested");
  co_return std::move(data);
}

}  // namespace ckpt::coordinator
