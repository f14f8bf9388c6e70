// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <string>

#include "libckpt/inprocess/shim/core/driver_files.h"
#include "libckpt/inprocess/shim/core/job_state.h"
#include "libckpt/inprocess/shim/rank/rank_session.h"
#include "libckpt/inprocess/shim/rank/session.h"

namespace ckpt::shim {
namespace {

std::once_flag g_once;
std::once_flag g_prepared;
std::atomic<RankSession*> g_session{nullptr};  // the session, which exists as long as the process

void forget() {
  RankSession* session = g_session.exchange(nullptr);
  if (session != nullptr) session->forget_in_child();
}

Result<void> start_session(const std::string& socket_path) {
  CKPT_TRY(created, RankSession::create(socket_path));
  RankSession* session = created.release();
  g_session.store(session);
  at_fork_child(forget);
  return session->start();
}

// Returns the path of the keeper's socket. Returns null outside a job, and in a forked child.
const char* keeper_socket() {
  const char* path = std::getenv("CKPT_SOCKET");
  return path == nullptr || path[0] == '\0' || forgotten() ? nullptr : path;
}

void start_once() {
  const char* socket_path = keeper_socket();
  if (socket_path == nullptr) return;
  std::string reason;
  try {
    const Result<void> started = start_session(socket_path);
    if (started.has_value()) return;
    reason = started.error().to_string();
  } catch (const std::exception& error) {
    reason = error.what();
  }
  std::fprintf(stderr, "gpumigrate: this process cannot be moved: %s\n", reason.c_str());
}

}  // namespace

void prepare_rank() noexcept {
  std::call_once(g_prepared, [] {
    if (keeper_socket() != nullptr) drop_driver_files_in_children();
  });
}

void start_rank() noexcept {
  std::call_once(g_once, start_once);
}

}  // namespace ckpt::shim
