// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>

#include "agent/host_process/memory_folder.h"
#include "agent/migration/modes/process_image.h"
#include "libckpt/protocol/wire/ids.h"

namespace ckpt::agent {
namespace {

TEST(UnusedImages, FoldersOfAKilledRehearsalAreRemoved) {
  std::string home = (std::filesystem::temp_directory_path() / "gm-unused-XXXXXX").string();
  ASSERT_NE(::mkdtemp(home.data()), nullptr);
  Config config;
  config.home = home;
  auto place = host::find_memory_place();
  ASSERT_TRUE(place);
  const auto left = [&](const std::string& name) {
    auto made = host::MemoryFolder::create(*place, folder_prefix(home) + name, 0);
    return (*std::move(made)).keep();
  };
  const wire::JobId live = wire::make_id(1, 7);
  const std::string rehearsal = left(std::string(kRehearsalImages) + "source");
  const std::string target = left(wire::job_text(live) + ".m1-target");
  const std::string dead = left(wire::job_text(wire::make_id(2, 7)) + ".m2-source");
  const std::string stays = left(wire::job_text(live) + ".m1-source");
  remove_unused_images(config, {live});
  EXPECT_FALSE(std::filesystem::exists(rehearsal));
  EXPECT_FALSE(std::filesystem::exists(target));
  EXPECT_FALSE(std::filesystem::exists(dead));
  EXPECT_TRUE(std::filesystem::exists(stays)) << "the job may go back to it";
  remove_unused_images(config, {});
  EXPECT_FALSE(std::filesystem::exists(stays));
  std::filesystem::remove_all(home);
}

}  // namespace
}  // namespace ckpt::agent
