// SPDX-License-Identifier: Apache-2.0
#include "coordinator/daemon/coordinator.h"

#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "coordinator/health/health_metrics.h"
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
  if (code) return Error(ErrorCode::kIo, "Creating the folder " + path + " failed: " + code.message());
  if (::chmod(path.c_str(), 0700) != 0) return Error::from_errno("Closing the folder " + path + " to others");
  return ok();
}

// Returns the token in the file, or writes a new token there (mode 0600).
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

std::string store_path(const Config& config) {
  return config.folder() + "/state.db";
}

Result<void> admit_client(const tls::Peer& peer) {
  if (role_of(peer) || peer.kind == tls::Peer::Kind::kJoiner) return ok();
  return Error(ErrorCode::kRefused,
               "The certificate belongs to " + to_text(peer) + ", not to a viewer, operator or admin");
}

wire::Welcome welcome_of(const Config& config, const std::string& peer_token) {
  wire::Welcome welcome;
  welcome.lease_term_ns = config.lease_term_ms * kNanosPerMs;
  welcome.handover_timeout_ns = config.handover_timeout_ms * kNanosPerMs;
  welcome.peer_token = peer_token;
  return welcome;
}

migration::Timing timing_of(const Config& config) {
  migration::Timing timing;
  timing.lease_term_ms = static_cast<std::uint32_t>(config.lease_term_ms);
  timing.handover_timeout_ms = static_cast<std::uint32_t>(config.handover_timeout_ms);
  return timing;
}

}  // namespace

Coordinator::Coordinator(control::asio::io_context& io, Config config, Store store, Journals journals,
                         std::function<void(const Error&)> fatal, const std::string& peer_token,
                         Images* fallback)
    : executor_(io.get_executor()),
      config_(std::move(config)),
      store_(std::move(store)),
      store_sync_(store_, store_path(config_), executor_),
      events_(store_, executor_),
      cordons_(store_, events_, executor_),
      policy_(store_, events_, executor_),
      migrations_(store_, executor_),
      jobs_(store_, executor_),
      nodes_(store_),
      catalog_(store_,
               [this](JobId id, Incarnation incarnation, std::int64_t barrier_ms) {
                 const Job* job = jobs_.find(id);
                 return job == nullptr ? std::nullopt
                                       : std::optional(why_suspect(job->doubts, incarnation, barrier_ms));
               }),
      job_view_(config_, nodes_, migrations_, catalog_),
      job_runner_(jobs_, events_, job_view_),
      admission_(jobs_, job_runner_, events_),
      removed_nodes_(store_, jobs_, job_runner_),
      node_calls_(nodes_, store_sync_, node_frames_, executor_),
      health_({store_, events_, node_calls_, node_frames_, policy_, executor_}),
      faults_(health_, cordons_, policy_),
      denied_({store_, events_, nodes_, node_calls_}),
      migration_runner_({migrations_, store_sync_, events_, nodes_, node_calls_, node_frames_, jobs_,
                         job_runner_, executor_},
                        std::move(journals.handovers), timing_of(config_), fatal),
      order_sender_(
          {nodes_, node_calls_, jobs_, job_runner_, job_view_, migrations_, migration_runner_, executor_}),
      backups_(store_, migration_runner_, config_.folder(), config_.certificate_authority),
      states_(nodes_, migrations_, snapshots_, faults_),
      planner_({config_, nodes_, jobs_, migrations_, cordons_, faults_, states_}),
      rendezvous_({nodes_, node_calls_, jobs_}),
      image_tables_(image_dependencies()),
      images_(image_dependencies(), image_tables_),
      image_api_({jobs_, image_tables_.catalog, image_tables_.finder, image_tables_.tasks,
                  images_.protections, images_.job_images, images_.requests, images_.removals}),
      moves_({config_, nodes_, node_calls_, jobs_, migrations_, migration_runner_, states_, planner_,
              images_.cancels, peer_token}),
      overcommit_({states_, planner_, jobs_, images_.job_images, moves_, migrations_, events_, executor_}),
      resumes_({events_, jobs_, job_runner_, planner_, image_tables_.finder, images_.requests, overcommit_,
                executor_}),
      service_({nodes_, node_calls_, jobs_, admission_, job_runner_, planner_, rendezvous_, overcommit_}),
      output_copies_(config_.folder() + "/output", static_cast<std::uint64_t>(config_.kept_output_mib) << 20),
      output_copier_({nodes_, node_calls_, jobs_, output_copies_,
                      std::chrono::milliseconds(config_.output_copy_interval_ms), executor_}),
      logs_(nodes_, node_calls_, jobs_, output_copies_),
      gang_moves_({store_sync_, events_, nodes_, node_calls_, node_frames_, jobs_, migrations_,
                   migration_runner_.outcomes(), states_, planner_, moves_, image_tables_.numbers, executor_},
                  std::move(journals.gangs), timing_of(config_), fatal),
      job_moves_({nodes_, jobs_, states_, planner_, moves_, gang_moves_}),
      recovery_({store_, events_, nodes_, node_calls_, jobs_, admission_, job_runner_, migrations_,
                 migration_runner_, gang_moves_, image_tables_.catalog, image_tables_.finder, executor_}),
      job_section_({service_, job_moves_, states_, logs_, nodes_, jobs_, migrations_}),
      migration_section_(migrations_, migration_runner_),
      drain_table_(store_, executor_),
      drains_({events_, nodes_, jobs_, migrations_, cordons_, states_, job_moves_,
               fallback != nullptr ? *fallback : static_cast<Images&>(images_.job_images), drain_table_,
               executor_}),
      evacuation_table_(store_),
      evacuations_({config_, events_, jobs_, migrations_, migration_runner_, cordons_, health_, policy_,
                    planner_, job_moves_,
                    fallback != nullptr ? *fallback : static_cast<Images&>(images_.job_images),
                    evacuation_table_, executor_}),
      node_events_({config_, events_, node_calls_, jobs_, job_runner_, migration_runner_, recovery_, denied_,
                    order_sender_, service_, drains_, health_, evacuations_, executor_}),
      sessions_({nodes_, node_calls_, node_frames_, removed_nodes_, node_events_, executor_},
                welcome_of(config_, peer_token)),
      removals_({removed_nodes_, denied_, events_, nodes_, sessions_, jobs_, job_runner_, migrations_,
                 output_copier_, config_.fence_command}),
      maintenance_({nodes_, cordons_, policy_, faults_, drains_, drain_table_}),
      health_section_({nodes_, policy_, health_, evacuations_, evacuation_table_}),
      metrics_({events_, nodes_, jobs_, migrations_, states_}),
      rebalancer_({moves_, planner_, states_, jobs_, migrations_, events_, config_.placement_margin_bytes,
                   executor_}),
      housekeeping_({config_, events_, jobs_, job_runner_, migration_runner_, drain_table_, health_,
                     evacuation_table_, executor_}),
      renewals_({config_, events_, nodes_, node_calls_, denied_, executor_}),
      joins_({renewals_, removed_nodes_, denied_, events_}, config_.folder() + "/used-join-tokens") {
  observe_health(metrics_.registry(), {nodes_, jobs_, faults_, policy_, evacuation_table_});
}

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
  std::unique_ptr<Coordinator> coordinator(new Coordinator(
      io, std::move(config), std::move(store), Journals{std::move(journal), std::move(gang_journal)},
      std::move(fatal), peer_token, fallback));
  coordinator->tokens_ = std::move(tokens);
  coordinator->agent_token_ = std::move(agent_token);
  coordinator->metrics_token_ = std::move(metrics_token);
  CKPT_TRYV(coordinator->open_identity());
  coordinator->metrics_.observe_certificates(coordinator->identity_);
  CKPT_TRYV(coordinator->load());
  if (coordinator->identity_) {
    CKPT_TRYV(coordinator->renewals_.start(coordinator->identity_));
  }
  // Up to this point each write was synced, including the tag of new ids.
  CKPT_TRYV(coordinator->store_sync_.begin());
  CKPT_TRYV(coordinator->listen());
  CKPT_TRYV(coordinator->announce());
  return coordinator;
}

ImageDependencies Coordinator::image_dependencies() {
  return {config_, store_,      events_,       nodes_,     node_calls_, node_frames_,
          jobs_,   job_runner_, job_view_,     admission_, catalog_,    migrations_,
          states_, planner_,    order_sender_, snapshots_, rendezvous_, executor_};
}

Result<void> Coordinator::load() {
  CKPT_TRYV(cordons_.load());
  CKPT_TRYV(policy_.load());
  CKPT_TRYV(nodes_.load());
  CKPT_TRYV(jobs_.load());
  CKPT_TRYV(removed_nodes_.load());
  CKPT_TRYV(denied_.load(identity_ ? identity_.get() : nullptr));
  CKPT_TRYV(drain_table_.load());
  CKPT_TRYV(health_.load());
  CKPT_TRYV(evacuation_table_.load());
  CKPT_TRYV(migrations_.load());
  CKPT_TRYV(migration_runner_.restore());
  CKPT_TRYV(gang_moves_.restore());
  CKPT_TRYV(image_tables_.load());
  CKPT_TRYV(output_copies_.load());
  removals_.finish();
  images_.start();
  resumes_.start();
  order_sender_.start();
  drains_.resume();
  evacuations_.start();
  housekeeping_.start();
  output_copier_.start();
  return ok();
}

Result<void> Coordinator::open_identity() {
  if (config_.tls.empty()) return ok();
  CKPT_TRY(identity, tls::Identity::load(config_.tls, [](const Error& error) {
             spdlog::error("the certificate was not renewed: {}", error.to_string());
           }));
  if (identity->subject() != tls::Peer::coordinator())
    return Error(ErrorCode::kInvalidArgument, config_.tls.certificate + " is the certificate of " +
                                                  to_text(identity->subject()) + ", not of the coordinator");
  identity_ = std::move(identity);
  return ok();
}

Result<void> Coordinator::listen_for_agents() {
  control::Listener::Settings settings;
  settings.address =
      config_.agent_address.empty() ? "unix:" + config_.folder() + "/agents.sock" : config_.agent_address;
  settings.token = agent_token_;
  settings.tls = {identity_,
                  control::except(denied_.serials(), [this](const tls::Peer& peer) -> Result<void> {
                    CKPT_TRYV(control::any_node()(peer));
                    return denied_.admit(peer);
                  })};
  settings.check_name = control::check_is_node;
  settings.connection.idle_timeout = std::chrono::milliseconds(config_.agent_idle_timeout_ms);
  settings.connection.ping_interval = settings.connection.idle_timeout / 4;
  CKPT_TRY(listener,
           control::Listener::create(executor_, std::move(settings),
                                     [this](std::shared_ptr<control::Connection> connection,
                                            wire::Hello hello) { sessions_.adopt(connection, hello); }));
  listener_ = listener;
  return ok();
}

Result<void> Coordinator::listen() {
  CKPT_TRYV(listen_for_agents());
  CKPT_TRYV(joins_.load({listener_->address(), agent_token_}));
  cluster_section_.emplace(ClusterSection::Dependencies{nodes_, jobs_, migrations_, events_, cordons_,
                                                        policy_, planner_, faults_, listener_->address(),
                                                        wall_clock_ms()});
  const std::vector<ApiSection*> sections = {
      &recovery_, &image_api_, &rebalancer_, &maintenance_, &health_section_,    &removals_,
      &joins_,    &denied_,    &backups_,    &job_section_, &migration_section_, &*cluster_section_};
  api_ = std::make_unique<Api>(tokens_, sections);
  HttpServer::Settings settings{
      config_.api_address, {identity_, control::except(denied_.serials(), admit_client)}, api_socket()};
  CKPT_TRY(http,
           HttpServer::create(
               executor_, std::move(settings),
               [this](HttpRequest request) { return answer(std::move(request)); }, Api::refuse, Api::waits));
  http_ = http;
  denied_.list_changed().subscribe([this] { close_denied(); });
  return ok();
}

// Returns an empty string if the path is too long for a socket and a TCP address is configured.
std::string Coordinator::api_socket() const {
  const std::string socket = "unix:" + config_.folder() + "/api.sock";
  return config_.api_address.empty() || control::parse_address(socket) ? socket : "";
}

void Coordinator::close_denied() {
  const tls::DeniedSerials& denied = *denied_.serials();
  sessions_.close_denied(denied);
  http_->close_where([&denied](const tls::Peer& peer) { return denied.contains(peer.serial); });
}

control::Task<HttpResponse> Coordinator::answer(HttpRequest request) {
  if (metrics::is_page(request)) co_return metrics::answer(metrics_.registry(), request, metrics_tokens());
  const bool changes = request.method != "GET";
  HttpResponse response = co_await api_->handle(std::move(request));
  if (changes) response = co_await once_durable(std::move(response));
  metrics_.answered(response.status);
  co_return response;
}

control::Task<HttpResponse> Coordinator::once_durable(HttpResponse response) {
  const auto stays = co_await durable(store_sync_);
  if (stays || response.status >= 400) co_return response;
  co_return Api::refuse(500, stays.error().to_string());
}

std::vector<std::string> Coordinator::metrics_tokens() const {
  if (config_.metrics_without_token) return {};
  return {metrics_token_, tokens_.admin};
}

Result<void> Coordinator::announce() {
  const std::string folder = config_.folder();
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
  if (auto stored = jobs_.store_unsaved(); !stored)
    spdlog::error("changes of jobs were not stored: {}", stored.error().to_string());
  migrations_.store_settled();
  http_->close();
  listener_->close();
  sessions_.close_all();
}

}  // namespace ckpt::coordinator
