// SPDX-License-Identifier: Apache-2.0
#include "coordinator/images/image_removals.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "coordinator/images/image_retention.h"
#include "libckpt/base/clock.h"
#include "libckpt/net/control/spawn.h"

namespace ckpt::coordinator {
namespace {

using std::chrono::milliseconds;

constexpr std::chrono::seconds kLongestPeriod{60};
constexpr std::chrono::seconds kShortestPeriod{1};
constexpr std::chrono::seconds kRemoval{120};
constexpr std::size_t kMaxOrdersASweep = 64;

// The versions to remove of one job in one checkpoint store, with one of their images.
struct Going {
  Image image;
  std::vector<std::uint64_t> versions;
};

std::vector<Going> by_checkpoint_store(const std::vector<ListedImage>& images) {
  std::map<std::tuple<std::string, std::string, std::string>, Going> going;
  for (const ListedImage& listed : images) {
    Going& entry = going[{listed.image.node, listed.image.folder, listed.image.image_job}];
    entry.image = listed.image;
    entry.versions.push_back(listed.image.version);
  }
  std::vector<Going> all;
  for (auto& [key, entry] : going) all.push_back(std::move(entry));
  return all;
}

}  // namespace

void ImageRemovals::start() {
  control::spawn(deps_.executor, "images of ended jobs", collect());
}

control::Task<Result<void>> ImageRemovals::remove(ImageId id, bool force) {
  CKPT_CO_TRY(listed, deps_.catalog.find(id));
  const Image image = listed.image;
  const Job* job = deps_.jobs.find(image.job);
  if (job != nullptr && job->operation)
    co_return Error(ErrorCode::kRefused, "Job " + job->spec.name + " is being suspended or restored");
  const auto best = deps_.catalog.newest(image.job, [](const Image& known) { return known.suspect.empty(); });
  const bool rests =
      job != nullptr && job->state == JobState::kParked && best && image_text(*best) == image_text(image);
  if (rests && !force)
    co_return Error(ErrorCode::kRefused, "Job " + job->spec.name + " is parked in " + image_text(image) +
                                             ", and would be lost (--force removes the image anyway)");
  wire::CheckpointStoreOrder order;
  order.act = wire::CheckpointStoreAct::kRemoveVersion;
  order.folder = image.folder;
  order.image_job = image.image_job;
  order.version = image.version;
  order.of_job = true;
  CKPT_CO_TRYV(co_await deps_.calls.call(image.node, order, kRemoval));
  deps_.events.add("image-removed", "image " + image_text(image) + " was removed", image.node, image.job);
  co_return ok();
}

void ImageRemovals::note_ends() {
  deps_.catalog.note_ends([this](JobId id) -> std::optional<std::int64_t> {
    const Job* job = deps_.jobs.find(id);
    if (job == nullptr) return std::nullopt;
    const bool over = is_ended(job->state) && !job->operation;
    return over ? std::max<std::int64_t>(1, job->ended_ms) : 0;
  });
}

control::Task<> ImageRemovals::collect() {
  const auto age = milliseconds(deps_.config.ended_images_max_age_ms);
  const auto period = std::clamp<milliseconds>(age / 4, kShortestPeriod, kLongestPeriod);
  control::asio::steady_timer timer(deps_.executor);
  while (true) {
    timer.expires_after(period);
    co_await timer.async_wait(control::kTuple);
    co_await sweep();
  }
}

control::Task<> ImageRemovals::sweep() {
  note_ends();
  RetentionLimits limits;
  limits.max_age_ms = deps_.config.ended_images_max_age_ms;
  limits.max_images = static_cast<std::size_t>(deps_.config.ended_images_kept);
  std::size_t removed = 0;
  std::size_t orders = 0;
  const std::vector<Going> all_going =
      by_checkpoint_store(images_to_collect(deps_.catalog.list(), limits, wall_clock_ms()));
  for (const Going& going : all_going) {
    const Job* job = deps_.jobs.find(going.image.job);
    const bool came_back = job != nullptr && (!is_ended(job->state) || job->operation);
    if (came_back || !deps_.nodes.connected(going.image.node)) continue;
    wire::CheckpointStoreOrder order;
    order.folder = going.image.folder;
    order.image_job = going.image.image_job;
    order.of_job = true;
    const bool all = going.versions.size() == deps_.catalog.count(going.image);
    order.act = all ? wire::CheckpointStoreAct::kRemoveJob : wire::CheckpointStoreAct::kRemoveVersion;
    for (const std::uint64_t version : going.versions) {
      if (++orders > kMaxOrdersASweep) break;
      order.version = version;
      const auto done = co_await deps_.calls.call(going.image.node, order, kRemoval);
      if (!done)
        spdlog::info("images of {} at {} were not removed yet: {}", order.image_job, going.image.node,
                     done.error().to_string());
      if (done && all) deps_.catalog.removed(going.image.node, order.folder, order.image_job);
      removed += !done ? 0 : all ? going.versions.size() : 1;
      if (all || !done) break;
    }
  }
  if (removed != 0)
    deps_.events.add("images-collected", fmt::format("{} images of ended jobs were removed", removed));
}

}  // namespace ckpt::coordinator
