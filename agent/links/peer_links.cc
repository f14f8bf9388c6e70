// SPDX-License-Identifier: Apache-2.0
#include "agent/links/peer_links.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <charconv>

#include "libckpt/base/fd.h"
#include "libckpt/base/random.h"
#include "libckpt/protocol/wire/control_messages.h"

namespace ckpt::agent {
namespace {

std::string with_port(const std::string& address, const std::string& port) {
  return address.substr(0, address.rfind(':') + 1) + port;
}

bool is_port(std::string_view text) {
  unsigned port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc{} && end == text.data() + text.size() && port > 0 && port < 65536;
}

Result<wire::CommitMessage> message_of(const wire::FrameHeader& header, std::span<const std::byte> body) {
  if (header.type != wire::FrameType::kCommit) {
    return Error(ErrorCode::kProtocol,
                 "Frame " + std::string(wire::to_string(header.type)) + " is not allowed on a peer link");
  }
  return wire::decode_between_agents(body);
}

}  // namespace

PeerLinks::PeerLinks(asio::any_io_executor executor, Settings settings, PeerMessages& messages)
    : executor_(std::move(executor)),
      settings_(std::move(settings)),
      messages_(std::make_shared<PeerMessages*>(&messages)),
      token_(std::make_shared<std::string>()) {}

PeerLinks::~PeerLinks() {
  *messages_ = nullptr;
  if (listener_) listener_->close();
  for (auto& [key, dialer] : wanted_) dialer->stop();
  for (auto& [node, weak] : incoming_) {
    if (auto connection = weak.lock())
      connection->close(Error(ErrorCode::kAborted, "This agent is shutting down"));
  }
}

control::TlsSettings PeerLinks::tls_to(control::Admit admit) const {
  if (!settings_.identity) return {};
  return {settings_.identity, control::except(settings_.denied, std::move(admit))};
}

std::function<Result<void>(const wire::FrameHeader&, std::span<const std::byte>)> PeerLinks::taker(
    const std::string& node) const {
  const PeerNode peer{node, settings_.identity != nullptr};
  return [messages = messages_, dropped = dropped_, peer](const wire::FrameHeader& header,
                                                          std::span<const std::byte> body) -> Result<void> {
    CKPT_TRY(message, message_of(header, body));
    if (*messages == nullptr || (*messages)->handle(peer, message)) return ok();
    if (const auto left_out = dropped->turn(now_ns()))
      spdlog::warn("message of a peer dropped: node {} id {} {} from {} {} not_logged {}", peer.name,
                   message.migration, wire::name_of(message.body), wire::to_string(message.from.role),
                   message.from.rank, *left_out);
    return ok();
  };
}

Result<void> PeerLinks::listen() {
  // A random token closes the listener to all peers until on_token().
  CKPT_TRY(nobody, random_hex(32));
  *token_ = nobody;
  control::Listener::Settings settings;
  settings.tls = tls_to(control::any_node());
  settings.check_name = control::check_is_node;
  settings.address = settings_.listen;
  settings.token = [token = token_] { return *token; };
  auto accept = [this, alive = std::weak_ptr(messages_)](std::shared_ptr<control::Connection> connection,
                                                         wire::Hello hello) {
    if (alive.lock()) accepted(std::move(connection), std::move(hello.name));
  };
  const bool any_port = settings_.listen.ends_with(":0");
  if (auto stored = read_file(settings_.port_file, 16); any_port && stored && is_port(*stored)) {
    settings.address = with_port(settings_.listen, *stored);
    if (auto listener = control::Listener::create(executor_, settings, accept)) {
      listener_ = *std::move(listener);
      return ok();
    }
    settings.address = settings_.listen;  // tried without the earlier port, because a different process uses
                                          // that port now
  }
  CKPT_TRY(listener, control::Listener::create(executor_, settings, accept));
  listener_ = std::move(listener);
  if (any_port) {
    CKPT_TRYV(write_file_durably(settings_.port_file, address().substr(address().rfind(':') + 1)));
  }
  return ok();
}

void PeerLinks::on_token(std::string token) {
  *token_ = std::move(token);
}

void PeerLinks::accepted(std::shared_ptr<control::Connection> connection, std::string node) {
  std::erase_if(incoming_, [](const auto& entry) { return entry.second.expired(); });
  control::Connection::Handlers handlers;
  handlers.on_frame = taker(node);
  handlers.on_closed = [node](const Error& error) {
    spdlog::debug("connection to a peer lost: node {} reason {}", node, error.to_string());
  };
  incoming_.emplace(node, connection);
  connection->start(std::move(handlers));
}

void PeerLinks::add(wire::MigrationId migration, std::string node, std::string address, std::string token) {
  on_token(token);
  const auto key = std::pair(migration, node);
  if (wanted_.contains(key)) return;
  control::Dialer::Settings settings;
  settings.name = settings_.node;
  settings.label = "agent " + node;
  settings.address = [address]() -> Result<std::string> { return address; };
  settings.token = [token]() -> Result<std::string> { return token; };
  settings.tls = tls_to(control::only(tls::Peer::node(node)));
  control::Dialer::Handlers handlers;
  handlers.on_connected = [](control::Connection&) {};
  handlers.on_frame = taker(node);
  handlers.on_lost = [](const Error&) {};
  auto dialer = control::Dialer::create(executor_, std::move(settings), std::move(handlers));
  dialer->start();
  wanted_.emplace(key, std::move(dialer));
}

void PeerLinks::drop(wire::MigrationId migration) {
  std::erase_if(wanted_, [migration](const auto& entry) {
    const bool is_of_it = entry.first.first == migration;
    if (is_of_it) entry.second->stop();
    return is_of_it;
  });
}

void PeerLinks::close_denied() {
  if (!settings_.denied) return;
  const auto close = [denied = settings_.denied](const std::shared_ptr<control::Connection>& connection) {
    if (connection && denied->contains(connection->certified().serial))
      connection->close(
          Error(ErrorCode::kRefused, "The certificate of " + connection->peer() + " is denied"));
  };
  for (const auto& [key, dialer] : wanted_) close(dialer->connection());
  for (const auto& [node, weak] : incoming_) close(weak.lock());
}

bool PeerLinks::send(const std::string& node, const wire::CommitMessage& message) {
  for (auto& [key, dialer] : wanted_) {
    if (key.second == node && dialer->connected() && dialer->send(message)) return true;
  }
  const auto [begin, end] = incoming_.equal_range(node);
  for (auto it = begin; it != end; ++it) {
    auto connection = it->second.lock();
    if (connection && connection->is_open() && connection->send(message)) return true;
  }
  return false;
}

}  // namespace ckpt::agent
