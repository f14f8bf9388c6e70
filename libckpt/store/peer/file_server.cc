// SPDX-License-Identifier: Apache-2.0
#include "libckpt/store/peer/file_server.h"

#include <algorithm>

#include "libckpt/base/random.h"
#include "libckpt/store/local/version.h"
#include "libckpt/store/peer/file_session.h"

namespace ckpt::checkpoint_store {
namespace {

constexpr std::size_t kMaxGrants = 1024;
constexpr std::size_t kMaxConnections = 256;
constexpr std::size_t kMaxUnauthenticatedPeers = 16;
constexpr std::chrono::milliseconds kHelloTime{5000};
constexpr std::chrono::milliseconds kLookForEnd{200};

// Compares in constant time, so that the duration does not reveal where the bytes differ.
bool equal(const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
  if (a.size() != b.size()) return false;
  std::byte difference{0};
  for (std::size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == std::byte{0};
}

}  // namespace

FileServer::FileServer(Settings settings, ListeningSocket listening,
                       std::shared_ptr<const tls::PskContext> context)
    : settings_(std::move(settings)), listening_(std::move(listening)), context_(std::move(context)) {}

Result<std::unique_ptr<FileServer>> FileServer::create(Settings settings) {
  CKPT_TRY(context, tls::PskContext::create());
  CKPT_TRY(listening, listen_at(settings.listen));
  std::unique_ptr<FileServer> server(
      new FileServer(std::move(settings), std::move(listening), std::move(context)));
  server->accepting_ = std::thread([raw = server.get()] { raw->accept_all(); });
  return server;
}

FileServer::~FileServer() {
  ending_.store(true);
  if (accepting_.joinable()) accepting_.join();
  bury(true);
}

Result<std::vector<std::byte>> FileServer::grant(const FileGrant& grant) {
  CKPT_TRYV(check_job_name(grant.job));
  auto granted = std::make_shared<Granted>();
  granted->grant = grant;
  granted->token.resize(kFileTokenBytes);
  CKPT_TRYV(fill_random(granted->token));
  CKPT_TRY(key, frame_key_of(granted->token));
  granted->key = std::move(key);
  granted->until = std::chrono::steady_clock::now() + grant.lasts;
  const std::lock_guard lock(mutex_);
  std::erase_if(grants_, [](const auto& g) { return g->until < std::chrono::steady_clock::now(); });
  if (grants_.size() >= kMaxGrants)
    return Error(ErrorCode::kRefused,
                 "Too many nodes use the checkpoint store " + settings_.folder + " already");
  grants_.push_back(granted);
  return granted->token;
}

void FileServer::revoke(const std::vector<std::byte>& token) {
  const std::lock_guard lock(mutex_);
  std::erase_if(grants_, [&](const auto& granted) { return equal(granted->token, token); });
  for (Connection& connection : connections_)
    if (connection.session && equal(connection.session->token(), token)) connection.stream.shut_down();
}

std::shared_ptr<const FileServer::Granted> FileServer::find(std::string_view identity) {
  const auto now = std::chrono::steady_clock::now();
  const std::lock_guard lock(mutex_);
  for (const auto& granted : grants_)
    if (granted->key.identity == identity && granted->until >= now) return granted;
  return nullptr;
}

void FileServer::accept_all() {
  while (!ending_.load()) {
    auto socket = accept_from(listening_.socket, kLookForEnd);
    bury(false);
    if (socket) {
      accept_socket(*std::move(socket));
    } else if (socket.error().code() != ErrorCode::kTimedOut) {
      std::this_thread::sleep_for(kLookForEnd);  // no descriptor is free; some will be closed soon
    }
  }
}

void FileServer::accept_socket(UniqueFd socket) {
  const std::lock_guard lock(mutex_);
  make_space();
  if (connections_.size() >= kMaxConnections) return;
  Connection& connection = connections_.emplace_back();
  auto stream = FrameStream::accepted(context_, std::move(socket),
                                      [this, &connection](std::string_view identity, tls::PskKey& key) {
                                        connection.granted = find(identity);
                                        if (connection.granted) key = connection.granted->key.key;
                                        return connection.granted != nullptr;
                                      });
  if (!stream) {
    connections_.pop_back();
    return;
  }
  connection.stream = *std::move(stream);
  connection.thread = std::thread([this, &connection] { serve(connection); });
}

// Closes the oldest connections of unauthenticated peers if there are too many.
void FileServer::make_space() {
  const auto is_unauthenticated = [](const Connection& connection) {
    return !connection.session && !connection.over.load();
  };
  auto unauthenticated =
      static_cast<std::size_t>(std::count_if(connections_.begin(), connections_.end(), is_unauthenticated));
  for (Connection& connection : connections_) {
    if (unauthenticated < kMaxUnauthenticatedPeers) return;
    if (!is_unauthenticated(connection)) continue;
    connection.stream.shut_down();
    --unauthenticated;
  }
}

// Removes connections that have ended or, with `all`, all connections.
void FileServer::bury(bool all) {
  std::list<Connection> gone;
  {
    const std::lock_guard lock(mutex_);
    for (auto it = connections_.begin(); it != connections_.end();) {
      const auto next = std::next(it);
      if (all) it->stream.shut_down();
      if (all || it->over.load()) gone.splice(gone.end(), connections_, it);
      it = next;
    }
  }
  for (Connection& connection : gone) connection.thread.join();
}

void FileServer::serve(Connection& connection) {
  if (greet(connection)) connection.session->serve(connection.stream);
  std::shared_ptr<Session> last;
  {
    const std::lock_guard lock(mutex_);
    last = std::move(connection.session);
  }
  last.reset();  // its resources are released before a client may see that the connection has ended
  connection.stream.shut_down();
  connection.over.store(true);
}

Result<void> FileServer::greet(Connection& connection) {
  CKPT_TRYV(connection.stream.handshake(kHelloTime));
  if (!connection.granted) return Error(ErrorCode::kInternal, "A handshake was done without a key");
  CKPT_TRY(received, connection.stream.receive(kHelloTime, kMaxRequestBytes, {}));
  CKPT_TRY(hello, wire::decode<FileHello>(received.head));
  auto session = session_of(*connection.granted, hello);
  FileReply reply;
  if (session) {
    const std::lock_guard lock(mutex_);
    connection.session = *session;
  } else {
    reply = refusal(session.error());
  }
  CKPT_TRYV(connection.stream.send(wire::encode(reply), {}));
  if (!session) return std::move(session).error();
  return ok();
}

Result<std::shared_ptr<FileServer::Session>> FileServer::session_of(const Granted& granted,
                                                                    const FileHello& hello) {
  const std::lock_guard lock(mutex_);
  const bool stays =
      std::any_of(grants_.begin(), grants_.end(), [&](const auto& g) { return g.get() == &granted; });
  if (!stays) return Error(ErrorCode::kUnavailable, "This node's grant is no longer valid");
  std::erase_if(sessions_, [](const auto& entry) { return entry.second.expired(); });
  auto& known = sessions_[{granted.token, hello.session}];
  if (auto session = known.lock()) return session;
  Tiers tiers;
  tiers.disk = settings_.folder;
  tiers.memory = settings_.memory;
  tiers.memory_limit_bytes = settings_.memory_limit_bytes;
  tiers.into_memory = granted.grant.into_memory;
  if (granted.grant.writes && !tiers.into_memory) tiers.settles = granted.grant.job;
  auto session = std::make_shared<Session>(std::move(tiers), granted.grant, granted.token);
  known = session;
  return session;
}

}  // namespace ckpt::checkpoint_store
