// SPDX-License-Identifier: Apache-2.0
#include "agent/coordinator_link/coordinator_link.h"

#include <spdlog/spdlog.h>

#include "agent/coordinator_link/api_file.h"
#include "libckpt/protocol/wire/control_messages.h"

namespace ckpt::agent {
namespace {

Result<std::string> coordinator_address(const Config& config) {
  if (config.coordinator_file.empty()) return config.coordinator;
  return address_in_api_file(config.coordinator_file);
}

Result<std::string> coordinator_token(const Config& config) {
  if (config.coordinator_file.empty()) return read_token(config.token_file);
  return token_by_api_file(config.coordinator_file);
}

// The limit for the text of a reply. It leaves space in the frame for the other fields.
constexpr std::size_t kMaxReplyText = std::size_t{60} << 10;

// Truncates the text to at most `max_bytes`, at a boundary between UTF-8 characters.
void cut(std::string& text, std::size_t max_bytes) {
  if (text.size() <= max_bytes) return;
  while (max_bytes > 0 && (static_cast<unsigned char>(text[max_bytes]) & 0xC0U) == 0x80U) --max_bytes;
  text.resize(max_bytes);
}

}  // namespace

CoordinatorLink::CoordinatorLink(asio::any_io_executor executor, const Config& config,
                                 AgentCommands& commands, std::shared_ptr<tls::Identity> identity,
                                 std::shared_ptr<const tls::DeniedSerials> denied)
    : executor_(std::move(executor)),
      config_(config),
      commands_(commands),
      identity_(std::move(identity)),
      denied_(std::move(denied)) {}

CoordinatorLink::~CoordinatorLink() {
  if (dialer_) dialer_->stop();
}

void CoordinatorLink::start() {
  control::Dialer::Settings settings;
  settings.name = config_.node;
  settings.label = "coordinator";
  settings.address = [this] { return coordinator_address(config_); };
  settings.token = [this] { return coordinator_token(config_); };
  settings.tls = {identity_, control::except(denied_, control::only(tls::Peer::coordinator()))};
  control::Dialer::Handlers handlers;
  handlers.on_connected = [this](control::Connection& connection) {
    wire::AgentHello hello;
    hello.software_version = GPUMIGRATE_VERSION;
    hello.inventory = commands_.inventory();
    commands_.introduce(hello);
    if (auto sent = connection.send(hello); !sent) {
      spdlog::error("inventory not sent: reason {}", sent.error().to_string());
    }
    for (const auto& report_again : at_connection_) report_again();
  };
  handlers.on_frame = [this](const wire::FrameHeader& header, std::span<const std::byte> body) {
    return on_frame(header, body);
  };
  handlers.on_lost = [](const Error& error) {
    spdlog::warn("coordinator lost: reason {}", error.to_string());
  };
  dialer_ = control::Dialer::create(executor_, std::move(settings), std::move(handlers));
  dialer_->start();
}

void CoordinatorLink::send_inventory() {
  if (!connected()) return;
  wire::Inventory message;
  message.inventory = commands_.inventory();
  transmit(message);
}

void CoordinatorLink::send_change(const wire::JobInstance& instance) {
  wire::JobChange message;
  message.instance = instance;
  transmit(message);
}

Result<void> CoordinatorLink::on_frame(const wire::FrameHeader& header, std::span<const std::byte> body) {
  using wire::FrameType;
  switch (header.type) {
    case FrameType::kCommit: {
      CKPT_TRY(message, wire::decode_commit(body));
      commands_.commit_message(std::move(message));
      return ok();
    }
    case FrameType::kWelcome: {
      CKPT_TRY(welcome, wire::decode<wire::Welcome>(body));
      commands_.welcome(welcome);
      return ok();
    }
    case FrameType::kStartJob: {
      CKPT_TRY(start, wire::decode<wire::StartJob>(body));
      auto work = commands_.start_job(std::move(start.spec));
      control::spawn(executor_, "start job", answer(start.request_id, std::move(work)));
      return ok();
    }
    case FrameType::kStopJob: {
      CKPT_TRY(stop, wire::decode<wire::StopJob>(body));
      const auto request = stop.request_id;
      auto work = commands_.stop_job(std::move(stop));
      control::spawn(executor_, "stop job", answer(request, std::move(work)));
      return ok();
    }
    case FrameType::kForgetJob: {
      CKPT_TRY(forget, wire::decode<wire::ForgetJob>(body));
      const auto request = forget.request_id;
      auto work = commands_.forget_job(std::move(forget));
      control::spawn(executor_, "forget job", answer(request, std::move(work)));
      return ok();
    }
    case FrameType::kReadLog: {
      CKPT_TRY(request, wire::decode<wire::ReadLog>(body));
      control::spawn(executor_, "read log", answer_log(std::move(request)));
      return ok();
    }
    case FrameType::kInspectProcess: {
      CKPT_TRY(request, wire::decode<wire::InspectProcess>(body));
      control::spawn(executor_, "inspect process", answer_facts(std::move(request)));
      return ok();
    }
    case FrameType::kSetLimits: {
      CKPT_TRY(limits, wire::decode<wire::SetLimits>(body));
      reply(limits.request_id, commands_.set_limits(limits));
      return ok();
    }
    default: {
      const auto handler = handlers_.find(header.type);
      if (handler != handlers_.end()) return handler->second(body);
      return Error(ErrorCode::kProtocol, "The coordinator sent an unexpected message, " +
                                             std::string(wire::to_string(header.type)));
    }
  }
}

Task<> CoordinatorLink::answer(std::uint64_t request, Task<Result<void>> work) {
  auto outcome = co_await std::move(work);
  reply(request, outcome);
}

Task<> CoordinatorLink::answer_log(wire::ReadLog request) {
  const auto id = request.request_id;
  auto data = co_await commands_.read_job_log(std::move(request));
  if (!data) co_return reply(id, std::move(data).error());
  if (!transmit(*data))
    reply(id, Error(ErrorCode::kRefused, "The requested part of the log is too long for one message"));
}

Task<> CoordinatorLink::answer_facts(wire::InspectProcess request) {
  const auto id = request.request_id;
  auto facts = co_await commands_.inspect(std::move(request));
  if (!facts) co_return reply(id, std::move(facts).error());
  if (!transmit(*facts))
    reply(id, Error(ErrorCode::kRefused, "The facts about the process are too long to be sent"));
}

void CoordinatorLink::reply(std::uint64_t request, const Result<void>& outcome) {
  wire::Reply message;
  message.request_id = request;
  if (!outcome) message.set_error(outcome.error());
  cut(message.message, kMaxReplyText);
  transmit(message);
}

}  // namespace ckpt::agent
