// SPDX-License-Identifier: Apache-2.0
// Images in the own vault of another node than the one that writes or reads them: that node grants it, and
// the two move the content between themselves (libckpt/store/peer). And jobs that come back from an image
// after they were forgotten.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "coordinator/images/image_table.h"
#include "libckpt/base/fault.h"
#include "libckpt/net/control/spawn.h"

namespace ckpt::coordinator {
namespace {

constexpr std::chrono::seconds kGranting{30};
constexpr std::chrono::seconds kPeerListing{30};
// Longer than whatever goes by it; it is taken back as soon as that is over.
constexpr std::chrono::hours kLongestGrant{2};

}  // namespace

// Whose vault it is.
std::string ImageTable::vault_node(const Job& job, const Destination& to) {
  return to.folder.empty() && !to.node.empty() ? to.node : job.node();
}

ImageTable::Destination ImageTable::kept_at(const Protection& protection) {
  Destination to;
  to.folder = protection.folder;
  to.node = protection.node;
  return to;
}

control::Task<Result<wire::VaultPeer>> ImageTable::ask_for_vault(std::string owner, std::string user,
                                                                 wire::GrantVault request) {
  wire::VaultPeer peer;
  if (owner == user) co_return peer;
  request.lasts_ms = static_cast<std::uint64_t>(std::chrono::milliseconds(kLongestGrant).count());
  CKPT_CO_TRY(granted, co_await parts_.nodes.grant_vault(owner, std::move(request), kGranting));
  peer.node = owner;
  peer.address = granted.address;
  peer.token = std::move(granted.token);
  peer.limit_bytes = granted.limit_bytes;
  co_return peer;
}

// Best effort: it ends by itself.
control::Task<> ImageTable::give_vault_back(wire::VaultPeer peer) {
  if (peer.address.empty()) co_return;
  wire::GrantVault request;
  request.revoke = peer.token;
  (void)co_await parts_.nodes.call(peer.node, std::move(request), kGranting);
}

// A snapshot of a job that runs on `node`, into the own vault of `owner` or the order's folder.
control::Task<Result<void>> ImageTable::order_snapshot(std::string node, std::string owner,
                                                       wire::TakeSnapshot order,
                                                       std::chrono::milliseconds limit) {
  const JobId id = order.job;
  if (order.folder.empty()) {
    wire::GrantVault request;
    request.vault_job = order.vault_job;
    request.writes = true;
    request.durable = order.end_after;  // nothing else is left of the job then
    auto peer = co_await ask_for_vault(owner, node, std::move(request));
    if (!peer) {
      if (order.end_after) vault_away_.try_emplace(id, std::chrono::steady_clock::now());
      snapshots_[id].failed = !order.end_after;  // it was not ordered
      co_return std::move(peer).assume_error();
    }
    vault_away_.erase(id);
    order.peer = std::move(peer).assume_value();
    if (!order.peer.address.empty()) fault_point(FaultPoint::kCoordinatorVaultGranted);
  }
  const wire::VaultPeer peer = order.peer;
  const Job* job = parts_.jobs.find(id);
  const bool given_up =
      order.end_after && (job == nullptr || !job->operation || !job->operation->cancelled.empty());
  if (given_up) {
    co_await give_vault_back(peer);
    co_return Error(ErrorCode::kUnavailable, "The snapshot was given up before it was ordered");
  }
  const std::string vault_job = order.vault_job;
  const auto taken = co_await parts_.nodes.call(node, std::move(order), limit);
  if (taken && !peer.address.empty()) fault_point(FaultPoint::kCoordinatorSnapshotTaken);
  co_await give_vault_back(peer);
  if (!taken || peer.address.empty()) co_return taken;
  wire::VaultOrder look;
  look.act = wire::VaultAct::kList;
  look.vault_job = vault_job;
  look.of_job = true;
  // Only the node where they lie says what images there are.
  if (auto listed = co_await parts_.nodes.call(peer.node, std::move(look), kPeerListing); !listed)
    spdlog::warn("the images of {} are not known yet: {}", peer.node, listed.assume_error().to_string());
  co_return taken;
}

// ---- jobs that were forgotten ----

bool ImageTable::is_unknown_job(JobId id) const {
  return parts_.jobs.find(id) == nullptr && !parts_.store.gave(id);
}

std::vector<Image> ImageTable::of_unknown_jobs() const {
  std::vector<Image> found;
  for (const ListedImage& listed : catalog_.list()) {
    const Image& image = listed.image;
    if (listed.damaged || !is_unknown_job(image.job)) continue;
    if (!found.empty() && found.back().job == image.job)
      found.back() = image;
    else
      found.push_back(image);
  }
  return found;
}

Result<Image> ImageTable::image_of_unknown(const std::string& id_or_name) const {
  const JobId said = parse_job_id(id_or_name).value_or(0);
  std::optional<ListedImage> newest;
  for (const ListedImage& listed : catalog_.list()) {
    const Image& image = listed.image;
    const bool meant = said != 0 ? wire::may_mean(said, image.job) : name_in(image) == id_or_name;
    if (!meant || listed.damaged || !is_unknown_job(image.job)) continue;
    if (newest && newest->image.job != image.job)
      return Error(ErrorCode::kRefused,
                   fmt::format("Images of several jobs are called {}: say which, like `restore {}`",
                               id_or_name, image_text(image)));
    newest = listed;
  }
  if (!newest)
    return Error(ErrorCode::kNotFound,
                 fmt::format("There is no job \"{}\", and no image of one: see `images`", id_or_name));
  const auto left_there = [&](const Node& node) {
    return node.connected() &&
           std::any_of(node.instances.begin(), node.instances.end(), [&](const auto& instance) {
             return instance.job == newest->image.job && is_over(instance.phase) &&
                    std::max(instance.runs_as, instance.incarnation) >= newest->incarnation;
           });
  };
  const auto& nodes = parts_.nodes.all();
  if (std::any_of(nodes.begin(), nodes.end(), [&](const auto& entry) { return left_there(entry.second); }))
    return newest->image;
  return Error(
      ErrorCode::kRefused,
      fmt::format("Job {} is not known here, and may run on a node that is not connected: `restore {}` is "
                  "your word that it does not",
                  id_or_name, image_text(newest->image)));
}

control::Task<Result<TaskId>> ImageTable::begin_revival(RestoreWish wish) {
  const Image image = *wish.image;
  if (!is_readable(image))
    co_return Error(ErrorCode::kUnavailable,
                    "Image " + image_text(image) + " is on " + image.node + ", which is not connected");
  wire::ReadImage request;
  request.folder = image.folder;
  request.vault_job = image.vault_job;
  request.version = image.version;
  CKPT_CO_TRY(facts, co_await parts_.nodes.read_image(image.node, std::move(request), kPeerListing));
  if (facts.spec.argv.empty() || facts.spec.ranks.size() != 1)
    co_return Error(ErrorCode::kCorrupt,
                    "Image " + image_text(image) + " does not say how its job is started");
  // What it did after its image nobody knows.
  CKPT_CO_TRY(revived, parts_.jobs.revive(std::move(facts.spec), Place(image.node, 0), image_text(image),
                                          image.barrier_ms));
  const JobId id = revived->id;
  auto begun = co_await begin_restore(id, std::move(wish));
  if (!begun) parts_.jobs.drop(id);
  co_return begun;
}

}  // namespace ckpt::coordinator
