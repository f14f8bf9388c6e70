// SPDX-License-Identifier: Apache-2.0
// The view of `top`: open moves, links between nodes, GPUs and live jobs. A pure function, except for the
// state of `progress`.
#pragma once

#include <string>

#include "tools/gpumigrate/client/coordinator_client.h"
#include "tools/gpumigrate/client/progress.h"
#include "tools/gpumigrate/client/screen.h"

namespace ckpt::cli {

// The coordinator's answers at one moment: lists in the form of docs/api.md.
struct ClusterNow {
  Json jobs;
  Json gpus;
  Json migrations;
};

std::string view_top(const ClusterNow& cluster, Progress& progress, const Layout& layout);

}  // namespace ckpt::cli
