// SPDX-License-Identifier: Apache-2.0
#include "coordinator/requests/routes.h"

#include <algorithm>
#include <array>

namespace ckpt::coordinator {
namespace {

constexpr Role kViewer = Role::kViewer;
constexpr Role kOperator = Role::kOperator;
constexpr Role kAdmin = Role::kAdmin;

constexpr std::array kRoutes = {
    Route{"GET", "status", kViewer},
    Route{"GET", "nodes", kViewer},
    Route{"GET", "recovery", kViewer},
    Route{"POST", "recovery/open", kAdmin},
    Route{"POST", "recovery/close", kAdmin},
    Route{"POST", "jobs/JOB/confirm", kAdmin},
    Route{"POST", "nodes/NODE/remove", kAdmin},
    Route{"POST", "join", kAdmin},  // also permitted for joiners, who may do nothing else
    Route{"POST", "nodes/NODE/add", kAdmin},
    Route{"GET", "certificates/denied", kAdmin},
    Route{"POST", "certificates/deny", kAdmin},
    Route{"POST", "certificates/allow", kAdmin},
    Route{"GET", "gpus", kViewer},
    Route{"GET", "jobs", kViewer},
    Route{"POST", "jobs", kAdmin},
    Route{"GET", "jobs/JOB", kViewer},
    Route{"POST", "adopt", kAdmin},
    Route{"POST", "jobs/JOB/stop", kOperator},
    Route{"GET", "jobs/JOB/wait", kViewer},
    Route{"GET", "jobs/JOB/obstacles", kOperator},
    Route{"GET", "jobs/JOB/logs", kAdmin},
    Route{"DELETE", "jobs/JOB", kOperator},
    Route{"POST", "jobs/JOB/migrate", kOperator},
    Route{"GET", "migrations", kViewer},
    Route{"GET", "migrations/ID", kViewer},
    Route{"GET", "migrations/ID/watch", kViewer},
    Route{"POST", "migrations/ID/abort", kOperator},
    Route{"POST", "migrations/ID/set", kOperator},
    Route{"POST", "migrations/ID/resolve", kAdmin},
    Route{"GET", "images", kViewer},
    Route{"POST", "images/ID/remove", kAdmin},
    Route{"POST", "jobs/JOB/snapshot", kOperator},
    Route{"POST", "jobs/JOB/protect", kOperator},
    Route{"POST", "jobs/JOB/unprotect", kOperator},
    Route{"POST", "jobs/JOB/suspend", kOperator},
    Route{"POST", "jobs/JOB/resume", kOperator},
    Route{"POST", "jobs/JOB/restore", kAdmin},
    Route{"GET", "tasks/ID", kViewer},
    Route{"POST", "rebalance", kOperator},
    Route{"GET", "rebalance", kViewer},
    Route{"GET", "rebalance/watch", kViewer},
    Route{"POST", "rebalance/stop", kOperator},
    Route{"GET", "cordons", kViewer},
    Route{"POST", "cordon", kOperator},
    Route{"POST", "uncordon", kOperator},
    Route{"GET", "drains", kViewer},
    Route{"POST", "drains", kOperator},
    Route{"GET", "drains/ID", kViewer},
    Route{"GET", "drains/ID/watch", kViewer},
    Route{"POST", "drains/ID/cancel", kOperator},
    Route{"GET", "health", kViewer},
    Route{"GET", "policy", kViewer},
    Route{"POST", "policy/pause", kOperator},
    Route{"POST", "policy/resume", kOperator},
    Route{"POST", "policy/reset-breaker", kOperator},
    Route{"GET", "backup", kAdmin},
    Route{"GET", "events", kViewer},
};

// Returns the first segment of `rest`, and removes it from `rest`.
std::string_view next_piece(std::string_view& rest) {
  const std::size_t end = rest.find('/');
  const std::string_view piece = rest.substr(0, end);
  rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  return piece;
}

bool fits(std::string_view pattern, std::string_view piece) {
  const bool any = pattern.front() >= 'A' && pattern.front() <= 'Z';
  return any || pattern == piece;
}

bool matches(const Route& route, const HttpRequest& request) {
  if (route.method != request.method || request.path.empty() || request.path.front() != "v1") return false;
  std::string_view rest = route.path;
  for (std::size_t i = 1; i < request.path.size(); ++i)
    if (rest.empty() || !fits(next_piece(rest), request.path[i])) return false;
  return rest.empty();
}

}  // namespace

std::span<const Route> all_routes() {
  return kRoutes;
}

const Route* find_route(const HttpRequest& request) {
  const auto* at = std::find_if(kRoutes.begin(), kRoutes.end(),
                                [&](const Route& route) { return matches(route, request); });
  return at == kRoutes.end() ? nullptr : at;
}

}  // namespace ckpt::coordinator
