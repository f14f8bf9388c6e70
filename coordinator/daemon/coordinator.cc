// SPDX-License-Identifier: Apache-2.0
#include "coordinator/daemon/coordinator.h"

#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "libckpt/base/clock.h"
#include "libckpt/base/fd.h"
#include "libckpt/base/random.h"
#include "libckpt/net/control/address.h"
#include "libckpt/net/control/spawn.h"
#include "libckpt/net/metrics/page.h"
#include "libckpt/protocol/wire/control_messages.h"
#include "libckpt/protocol/wire/job_messages.h"
#include "libckpt/protocol/wire/migration_messages.h"
#include "libckpt/protocol/wire/node_messages.h"

namespace ckpt::coordinator {
namespace {

constexpr std::size_t kTokenBytes = 32;
constexpr std::size_t kLargestTokenFile = 4096;

Result<void> make_folder(const std::string& path) {
  std::error_code code;
  std::filesystem::create_directories(path, code);
  if (code) return Error(ErrorCode::kIo, "Cannot create the folder " + path + ": " + code.message());
  if (::chmod(path.c_str(), 0700) != 0)
    return Error::from_errno("Cannot close the folder " + path + " to others");
  return ok();
}

// Returns the token in the file. If there is no file, writes a new token to it (mode 0600) and returns that
// token. Refuses a file that other users can read.
Result<std::string> token_of(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0) {
    if ((info.st_mode & 0077) != 0 || info.st_uid != ::geteuid())
      return Error(ErrorCode::kRefused,
                   "Token file " + path + " can be read by other users: remove it, or run `chmod 600` on it");
    CKPT_TRY(text, read_file(path, kLargestTokenFile));
    while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
    if (text.size() >= kTokenBytes) return std::move(text);
    return Error(ErrorCode::kRefused, "Token file " + path + " contains no token: remove it");
  }
  CKPT_TRY(token, random_hex(kTokenBytes));
  CKPT_TRYV(write_file_durably(path, token + "\n", 0600));
  return std::move(token);
}

Result<void> admit_client(const tls::Peer& peer) {
  if (role_of(peer) || peer.kind == tls::Peer::Kind::kJoiner) return ok();
  return Error(ErrorCode::kRefused,
               "The certificate belongs to " + to_text(peer) + ", not to a viewer, operator or admin");
}

}  // namespace

Coordinator::Coordinator(control::asio::io_context& io, Config config, Store store, Journals journals,
                         const std::function<void(const Error&)>& fatal, const std::string& peer_token,
                         Images* fallback)
    : tables_(io.get_executor(), std::move(config), std::move(store)),
      migrations_(tables_, std::move(journals.handovers), fatal),
      image_tables_(image_dependencies(tables_, migrations_)),
      images_(image_dependencies(tables_, migrations_), image_tables_),
      moves_(core(), std::move(journals.gangs), peer_token, fatal),
      maintenance_(core(), moves_,
                   fallback != nullptr ? *fallback : static_cast<Images&>(images_.job_images)),
      nodes_(core(), moves_, maintenance_, peer_token),
      api_services_(core(), moves_, maintenance_) {}

Result<std::unique_ptr<Coordinator>> Coordinator::create(control::asio::io_context& io, Config config,
                                                         std::function<void(const Error&)> fatal,
                                                         Images* fallback) {
  const std::string folder = config.folder();
  CKPT_TRYV(make_folder(folder));
  // The journal is opened first, because its lock keeps a second coordinator out of the folder.
  CKPT_TRY(journal, migration::Journal::open(folder + "/journal"));
  CKPT_TRY(gang_journal, gang::GangJournal::open(folder + "/gang-journal"));
  CKPT_TRY(store, Store::open(store_path(config)));
  if (config.tagged_ids) {
    CKPT_TRYV(store.draw_id_tag());
  }
  CKPT_TRY(peer_token, token_of(folder + "/peer-token"));
  RoleTokens tokens;
  CKPT_TRY(viewer_token, token_of(folder + "/viewer-token"));
  CKPT_TRY(operator_token, token_of(folder + "/operator-token"));
  CKPT_TRY(token, token_of(folder + "/token"));
  tokens.viewer = std::move(viewer_token);
  tokens.operating = std::move(operator_token);
  tokens.admin = std::move(token);
  CKPT_TRY(agent_token, token_of(folder + "/agent-token"));
  CKPT_TRY(metrics_token, token_of(folder + "/metrics-token"));
  std::unique_ptr<Coordinator> coordinator(
      new Coordinator(io, std::move(config), std::move(store),
                      Journals{std::move(journal), std::move(gang_journal)}, fatal, peer_token, fallback));
  coordinator->tokens_ = std::move(tokens);
  coordinator->agent_token_ = std::move(agent_token);
  coordinator->metrics_token_ = std::move(metrics_token);
  CKPT_TRYV(coordinator->open_identity());
  coordinator->api_services_.metrics.observe_certificates(coordinator->identity_);
  CKPT_TRYV(coordinator->load());
  if (coordinator->identity_) {
    CKPT_TRYV(coordinator->api_services_.renewals.start(coordinator->identity_));
  }
  // Until begin(), the store synced each write itself, including the write of the tag for new ids.
  CKPT_TRYV(coordinator->tables_.store_sync.begin());
  CKPT_TRYV(coordinator->listen());
  CKPT_TRYV(coordinator->announce());
  return coordinator;
}

Result<void> Coordinator::load() {
  CKPT_TRYV(tables_.cordons.load());
  CKPT_TRYV(tables_.policy.load());
  CKPT_TRYV(tables_.nodes.load());
  CKPT_TRYV(tables_.jobs.load());
  CKPT_TRYV(tables_.removed_nodes.load());
  CKPT_TRYV(tables_.denied.load(identity_ ? identity_.get() : nullptr));
  CKPT_TRYV(maintenance_.drain_table.load());
  CKPT_TRYV(tables_.health.load());
  CKPT_TRYV(maintenance_.evacuation_table.load());
  CKPT_TRYV(tables_.migrations.load());
  CKPT_TRYV(migrations_.runner.restore());
  CKPT_TRYV(moves_.gang_moves.restore());
  CKPT_TRYV(image_tables_.load());
  CKPT_TRYV(moves_.output_copies.load());
  nodes_.removals.finish();
  images_.start();
  moves_.resumes.start();
  migrations_.orders.start();
  maintenance_.drains.resume();
  maintenance_.evacuations.start();
  api_services_.housekeeping.start();
  moves_.output_copier.start();
  return ok();
}

Result<void> Coordinator::open_identity() {
  if (tables_.config.tls.empty()) return ok();
  CKPT_TRY(identity, tls::Identity::load(tables_.config.tls, [](const Error& error) {
             spdlog::error("the certificate was not renewed: {}", error.to_string());
           }));
  if (identity->subject() != tls::Peer::coordinator())
    return Error(ErrorCode::kInvalidArgument, tables_.config.tls.certificate + " is the certificate of " +
                                                  to_text(identity->subject()) + ", not of the coordinator");
  identity_ = std::move(identity);
  return ok();
}

Result<void> Coordinator::listen_for_agents() {
  control::Listener::Settings settings;
  settings.address = tables_.config.agent_address.empty() ? "unix:" + tables_.config.folder() + "/agents.sock"
                                                          : tables_.config.agent_address;
  settings.token = agent_token_;
  settings.tls = {identity_,
                  control::except(tables_.denied.serials(), [this](const tls::Peer& peer) -> Result<void> {
                    CKPT_TRYV(control::any_node()(peer));
                    return tables_.denied.admit(peer);
                  })};
  settings.check_name = control::check_is_node;
  settings.connection.idle_timeout = std::chrono::milliseconds(tables_.config.agent_idle_timeout_ms);
  settings.connection.ping_interval = settings.connection.idle_timeout / 4;
  CKPT_TRY(listener, control::Listener::create(
                         tables_.executor, std::move(settings),
                         [this](std::shared_ptr<control::Connection> connection, wire::Hello hello) {
                           nodes_.sessions.adopt(connection, hello);
                         }));
  listener_ = listener;
  return ok();
}

Result<void> Coordinator::listen() {
  CKPT_TRYV(listen_for_agents());
  CKPT_TRYV(api_services_.joins.load({listener_->address(), agent_token_}));
  cluster_section_.emplace(ClusterSection::Dependencies{
      tables_.nodes, tables_.jobs, tables_.migrations, tables_.events, tables_.cordons, tables_.policy,
      migrations_.planner, tables_.faults, listener_->address(), wall_clock_ms()});
  const std::vector<ApiSection*> sections = {
      &moves_.recovery,      &api_services_.images, &api_services_.rebalancer, &api_services_.maintenance,
      &api_services_.health, &nodes_.removals,      &api_services_.joins,      &tables_.denied,
      &migrations_.backups,  &api_services_.jobs,   &api_services_.migrations, &*cluster_section_};
  api_ = std::make_unique<Api>(tokens_, sections);
  HttpServer::Settings settings{tables_.config.api_address,
                                {identity_, control::except(tables_.denied.serials(), admit_client)},
                                api_socket()};
  CKPT_TRY(http,
           HttpServer::create(
               tables_.executor, std::move(settings),
               [this](HttpRequest request) { return answer(std::move(request)); }, Api::refuse, Api::waits));
  http_ = http;
  tables_.denied.list_changed().subscribe([this] { close_denied(); });
  return ok();
}

// Returns the address of the API's Unix socket. Returns an empty string if its path is too long and a TCP
// address is configured.
std::string Coordinator::api_socket() const {
  const std::string socket = "unix:" + tables_.config.folder() + "/api.sock";
  return tables_.config.api_address.empty() || control::parse_address(socket) ? socket : "";
}

void Coordinator::close_denied() {
  const tls::DeniedSerials& denied = *tables_.denied.serials();
  nodes_.sessions.close_denied(denied);
  http_->close_where([&denied](const tls::Peer& peer) { return denied.contains(peer.serial); });
}

control::Task<HttpResponse> Coordinator::answer(HttpRequest request) {
  if (metrics::is_page(request))
    co_return metrics::answer(api_services_.metrics.registry(), request, metrics_tokens());
  const bool changes = request.method != "GET";
  HttpResponse response = co_await api_->handle(std::move(request));
  if (changes) response = co_await once_durable(std::move(response));
  api_services_.metrics.answered(response.status);
  co_return response;
}

control::Task<HttpResponse> Coordinator::once_durable(HttpResponse response) {
  const auto stays = co_await durable(tables_.store_sync);
  if (stays || response.status >= 400) co_return response;
  co_return Api::refuse(500, stays.error().to_string());
}

std::vector<std::string> Coordinator::metrics_tokens() const {
  if (tables_.config.metrics_without_token) return {};
  return {metrics_token_, tokens_.admin};
}

Result<void> Coordinator::announce() {
  const std::string folder = tables_.config.folder();
  json j = {{"url", api_url()},
            {"socket", api_socket()},
            {"token_file", folder + "/token"},
            {"operator_token_file", folder + "/operator-token"},
            {"viewer_token_file", folder + "/viewer-token"},
            {"agent_address", listener_->address()},
            {"agent_token_file", folder + "/agent-token"},
            {"metrics_token_file", folder + "/metrics-token"},
            {"pid", ::getpid()}};
  if (identity_) {
    const tls::CertFiles& files = identity_->files();
    j["ca"] = files.ca;
    j["certificate"] = files.certificate;
    j["key"] = files.key;
  }
  CKPT_TRYV(write_file_durably(folder + "/api.json", j.dump(2) + "\n", 0600));
  spdlog::info("the API listens at {} {}, agents connect to {}", api_socket(), api_url(),
               listener_->address());
  return ok();
}

void Coordinator::stop() {
  spdlog::info("stopping; jobs and agents continue to run");
  if (auto stored = tables_.jobs.store_unsaved(); !stored)
    spdlog::error("changes of jobs were not stored: {}", stored.error().to_string());
  tables_.migrations.store_settled();
  http_->close();
  listener_->close();
  nodes_.sessions.close_all();
}

}  // namespace ckpt::coordinator
